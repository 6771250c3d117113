package scenario

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// Play is Run in a bubble of its own. If the goroutines of the bubble block each
// other, or one of them is left over, the records say so and t does not fail.
func Play(t *testing.T, scenarios ...Scenario) (records []*Record) {
	records = make([]*Record, len(scenarios))
	defer func() {
		if v := recover(); v != nil {
			for i, r := range records {
				if r == nil {
					r = &Record{Scenario: scenarios[i]}
					records[i] = r
				}
				r.Deadlock = fmt.Sprint(v)
			}
		}
	}()
	synctest.Test(t, func(*testing.T) { play(scenarios, records) })
	return records
}
