//go:build unix

package loopback

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that all threads of this process have used together, or
// 0 where the system does not tell.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
