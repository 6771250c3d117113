//go:build !unix

package loopback

import "time"

// CPUTime returns the CPU time that all threads of this process have used together, or
// 0 where the system does not tell.
func CPUTime() time.Duration { return 0 }
