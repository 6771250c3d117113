//go:build unix

package loopback

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that this process has used, all its threads
// together, and 0 where that cannot be told.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
