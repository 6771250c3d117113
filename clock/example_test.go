package clock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-sse/reprise/clock"
)

// A program that waits, and a test that does not: it waits for the timer to be
// set, asks how far off it is, and moves the time there.
func ExampleFake() {
	fake := clock.NewFake(time.Time{})
	start := fake.Now()

	done := make(chan struct{})
	go func() { // the program under test
		defer close(done)
		fired := make(chan time.Time)
		fake.AfterFunc(time.Hour, func() { fired <- fake.Now() })
		fmt.Println("fired after", (<-fired).Sub(start))
	}()

	if err := fake.Wait(context.Background(), 1); err != nil {
		panic(err)
	}
	d, _ := fake.Next()
	fmt.Println("the next timer is due in", d)
	fake.Advance(d)
	<-done
	// Output:
	// the next timer is due in 1h0m0s
	// fired after 1h0m0s
}
