package scenario

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// Bubble calls f in a bubble. If the goroutines of the bubble block each other, or one of
// them is left over, it returns a text that says so, and t does not fail.
//
// Under the race detector every bubble in which a timer fires leaks some memory, so run
// many scenarios in one bubble.
func Bubble(t *testing.T, f func()) (deadlock string) {
	defer func() {
		if v := recover(); v != nil {
			deadlock = fmt.Sprint(v)
		}
	}()
	synctest.Test(t, func(*testing.T) { f() })
	return ""
}

// Play is Run in a bubble of its own. The records tell of a deadlock.
func Play(t *testing.T, scenarios ...Scenario) []*Record {
	records := make([]*Record, len(scenarios))
	if deadlock := Bubble(t, func() { play(scenarios, records) }); deadlock != "" {
		for i, r := range records {
			if r == nil {
				r = &Record{Scenario: scenarios[i]}
				records[i] = r
			}
			r.Deadlock = deadlock
		}
	}
	return records
}
