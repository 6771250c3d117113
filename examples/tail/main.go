// Tail follows an endpoint of server-sent events as tail -f follows a file.
//
// Usage:
//
//	tail [flags] [URL]
//
// Events go to standard output, each with its time and type, or as JSON objects
// with -json. What the client is doing goes to standard error: when it connects,
// why a connection ended, how long it waits and who asked for that, and why it gave
// up.
//
// Without a URL it follows a demo server of its own. In about 15 seconds this
// server does to the stream what servers and networks do; then tail prints a
// summary.
//
// The exit status is 0 after an orderly end or an interrupt (Ctrl-C), 1 if the
// client gave up or the demo's summary is not as it should be, and 2 if the command
// line is wrong.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second interrupt kills the program, in case standard output is stuck.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
