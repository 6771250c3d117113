package scenario

import (
	"sync"
	"time"

	"github.com/reprise-sse/reprise/clock"
)

// A ledger is the system's clock, which inside a bubble is the bubble's, and counts the
// armed timers.
type ledger struct {
	mu    sync.Mutex
	armed int
}

var _ clock.Clock = (*ledger)(nil)

func (l *ledger) Now() time.Time { return time.Now() }

func (l *ledger) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &entry{ledger: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.arm(true)
	t.timer = time.AfterFunc(d, func() {
		l.mu.Lock()
		t.arm(false)
		l.mu.Unlock()
		f()
	})
	return t
}

// count returns the number of armed timers.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.armed
}

type entry struct {
	ledger *ledger
	timer  *time.Timer
	armed  bool
}

// arm sets whether the timer is armed. The ledger's mu is held.
func (t *entry) arm(armed bool) {
	if t.armed != armed {
		t.armed = armed
		if armed {
			t.ledger.armed++
		} else {
			t.ledger.armed--
		}
	}
}

// Stop implements clock.Timer. A Stop that comes too late counts as well: the timer is
// not armed any more.
func (t *entry) Stop() bool {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	t.arm(false)
	return t.timer.Stop()
}

func (t *entry) Reset(d time.Duration) bool {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	t.arm(true)
	return t.timer.Reset(d)
}
