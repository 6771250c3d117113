package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-sse/reprise/clock"
)

func TestSystemIsTheTimePackage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		start := time.Now()
		if got := c.Now(); !got.Equal(start) {
			t.Errorf("Now is %v, want %v", got, start)
		}

		fired := make(chan time.Time, 1)
		timer := c.AfterFunc(3*time.Second, func() { fired <- c.Now() })
		time.Sleep(3*time.Second - time.Nanosecond) // the bubble's time
		synctest.Wait()
		if len(fired) != 0 {
			t.Error("fired before its time")
		}
		if got := (<-fired).Sub(start); got != 3*time.Second {
			t.Errorf("fired %v after it was set, want 3s", got)
		}
		if timer.Stop() {
			t.Error("Stop after the call reports true")
		}
	})
}
