// Package eventsourcetest is a scripted server of event streams for tests: what
// net/http/httptest is to HTTP, with everything that can go wrong with a stream.
//
// A [Server] follows a script, which says step by step what to do with each request
// in turn: write an event, wait, reset the connection, refuse the next one. It
// records what it was sent and when, so a test can check what the client came back
// with and how long it had waited.
//
// # Tests that take no time
//
// A server's network is in memory unless it is asked for a port, so it works
// inside a [testing/synctest] bubble, where all waiting is over at once:
//
//	func TestResume(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{
//				{eventsourcetest.Retry(time.Hour), eventsourcetest.Event{ID: "1", Data: "a"}, eventsourcetest.Reset},
//				{eventsourcetest.Event{ID: "2", Data: "b"}},
//			}}
//			srv.Start()
//			defer srv.Close()
//
//			got := program(srv.Client(), srv.URL) // the code under test, which reads "a" and "b"
//
//			again := srv.Requests()[1]
//			if again.LastEventID != "1" || again.Gap < time.Hour {
//				t.Errorf("it came back after %v with ID %q", again.Gap, again.LastEventID)
//			}
//		})
//	}
//
// After the script every request is answered with status 204, which ends an event
// stream for good, unless [Server.Rest] says otherwise. To see that a client leaves,
// and does not come back, let time pass with time.Sleep and look at
// [Server.Requests].
//
// # Tests with sockets
//
// Where the code under test insists on the real network, set [Server.Loopback],
// and give the server and the client the same [clock.Fake]: real sockets do not work
// in a bubble. Bear in mind that a Wait of the script is a timer of that clock, like
// the client's. [Server.Await] waits until a request has arrived or ended.
//
// # When to use something else
//
// A test needs other tools for what happens below HTTP (a connection cut after so
// many bytes, a peer that vanishes without a word) or to an HTTP/2 connection as a
// whole, and for how a decoder copes with bytes as they come: [Send] flushes each
// text, but the network decides how it is cut into reads.
//
// [clock.Fake]: https://pkg.go.dev/github.com/reprise-sse/reprise/clock#Fake
package eventsourcetest
