//go:build !unix

package loopback

import "time"

// CPUTime returns the CPU time that this process has used, all its threads
// together. It panics where that cannot be told.
func CPUTime() time.Duration { panic("loopback: CPU time is measured on Unix only") }
