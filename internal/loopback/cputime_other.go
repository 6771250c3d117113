//go:build !unix

package loopback

import "time"

// CPUTime returns the CPU time that this process has used, all its threads
// together, and 0 where that cannot be told.
func CPUTime() time.Duration { return 0 }
