package eventsourcetest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Step is one thing that the server does with a request. The types of this
// package that are steps are
//
//   - [Status], which answers with a status, a header and a body;
//   - [Send], [Event], [Comment] and [Retry], which write to the response and
//     flush it;
//   - [Wait], which lets time pass on the server's clock;
//   - the [Action] constants: [Open], the ends of a response [End], [Cut], [Reset]
//     and [Stall], and [Refuse];
//   - [Outage], which refuses connections for a time;
//   - [Do], which calls a function.
//
// A step that writes opens an event stream first, as [Open] does, unless the
// request has been answered before. Steps after an end are not reached; where
// there is none, [End] is implied.
type Step interface {
	step(*Conn)
}

// Send writes a text unchanged and flushes it. It is for what the other steps cannot
// write: half an event, several at once, lines that end in CR, malformed fields, bytes
// that are not UTF-8.
type Send string

func (s Send) step(c *Conn) { c.write(string(s)) }

// Event writes a whole event, with its blank line, and flushes it.
//
// The event always has a data line, even if it is empty, so Event{ID: "7"} is
// dispatched with empty data: a priming event. For a block without data, or to clear
// the last event ID with an empty one, use [Send].
type Event struct {
	// Type and ID are the event and id fields, left out if empty. Line ends and
	// NULs in them are written as they are.
	Type, ID string

	// Data is written as a data line for each of its lines. LF, CR and CRLF end
	// lines; a client sees an LF for each.
	Data string
}

func (e Event) step(c *Conn) { c.write(e.String()) }

// String returns the event as it is written.
func (e Event) String() string {
	var b strings.Builder
	if e.Type != "" {
		b.WriteString("event: " + e.Type + "\n")
	}
	if e.ID != "" {
		b.WriteString("id: " + e.ID + "\n")
	}
	for line := range strings.SplitSeq(lineEnds.Replace(e.Data), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteByte('\n')
	return b.String()
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Comment writes a comment line and a blank line, as servers do to keep a
// connection alive, and flushes them. Its text must have no line ends.
type Comment string

func (t Comment) step(c *Conn) { c.write(": " + string(t) + "\n\n") }

// Retry writes a retry field and a blank line, which set the client's
// reconnection time, and flushes them. It counts whole milliseconds. For values
// that a duration cannot hold, or malformed ones, use [Send].
type Retry time.Duration

func (d Retry) step(c *Conn) {
	c.write("retry: " + strconv.FormatInt(time.Duration(d).Milliseconds(), 10) + "\n\n")
}

// Wait lets time pass on the server's clock. It ends early if the client leaves
// or the server is closed. While it lasts it is one pending timer of the clock.
type Wait time.Duration

func (d Wait) step(c *Conn) { c.wait(time.Duration(d)) }

// Status answers with a status, a header and a body. Steps that write may follow
// and go on with the body; when the next step is [End] or there is none, the
// answer has a Content-Length, else it is flushed piece by piece.
//
// Only the first Status of a request counts, and only if nothing has been
// written before.
type Status struct {
	// Code is the status; 0 means 200.
	Code int

	// Header is the whole header of the response, except for what frames the body
	// and the Date, which is the time of the server's clock unless Header has one.
	// Without a Content-Type here the response has none. Header is not changed.
	Header http.Header

	// Body is the body, or its beginning. It is not sent where HTTP allows none.
	Body string
}

func (s Status) step(c *Conn) { c.respond(s) }

// Do calls a function, for answers that depend on the request or on the test:
//
//	eventsourcetest.Do(func(c *eventsourcetest.Conn) {
//		next, _ := strconv.Atoi(c.Request().LastEventID)
//		for _, e := range log[next:] {
//			c.Play(e)
//		}
//	})
//
// The function runs on a goroutine of the server. It may block, for instance until
// the test has done something, but must return once the context of the Conn is done.
// It may end the response by playing one of the ends, which take effect before the
// function returns; otherwise the steps after Do follow.
type Do func(*Conn)

func (f Do) step(c *Conn) { f(c) }

// Outage refuses connections, as [Refuse] does, until the given time, more than
// zero, has passed since the response before it ended (since Start, if there was
// none). It must be the only step of its entry, which applies to all attempts in that
// time; the first attempt after it meets the next entry. It cannot be used in Rest.
type Outage time.Duration

func (d Outage) step(*Conn) { panic(standsAlone(d)) }

// An Action is a [Step] without parameters. The zero Action is not a step, and panics
// when it is played.
type Action int

const (
	// Open sends the header of an event stream: status 200 and Content-Type
	// text/event-stream. It is needed only where nothing is written, as in
	// {Open, Stall}.
	Open Action = iota + 1

	// End ends the response properly, after opening an event stream if the
	// request has not been answered. The connection can be used again.
	End

	// Cut closes the connection without ending the response: the client reads
	// what was sent and then an unexpected end. As the first step it closes the
	// connection before any byte. HTTP/2: as Reset.
	Cut

	// Reset resets the connection: the client reads what was sent (on a socket
	// that is up to its TCP, which may lose some) and then "connection reset by
	// peer". As the first step it does so before any byte. HTTP/2: it resets the
	// stream with INTERNAL_ERROR.
	Reset

	// Stall sends nothing more and holds the connection until the client leaves
	// or the server is closed.
	Stall

	// Refuse refuses the connection: the client's dial fails with "connection
	// refused". It must be the only step of its entry.
	//
	// The server's DialContext refuses, which its Client uses. For a request that
	// came another way, through the address of a Loopback server, Refuse is Cut. So
	// that there is a dial to refuse, no connection is used for a second request as
	// long as the rest of the script has a Refuse or an [Outage].
	Refuse
)

func (a Action) step(c *Conn) {
	switch a {
	case Open:
		c.open()
		c.flush()
	case End:
		c.end()
	case Cut, Reset:
		c.abort(a == Reset)
	case Stall:
		c.stall()
	case Refuse:
		panic(standsAlone(a))
	default:
		panic(fmt.Sprintf("eventsourcetest: %v is not a Step", a))
	}
}

var actionNames = [...]string{
	Open: "Open", End: "End", Cut: "Cut", Reset: "Reset", Stall: "Stall", Refuse: "Refuse",
}

// String returns the constant's name.
func (a Action) String() string {
	if a > 0 && int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", int(a))
}

// refuses reports whether an entry of a script refuses connections, and for how long
// if it is an outage.
func refuses(entry []Step) (outage time.Duration, ok bool) {
	if len(entry) == 0 {
		return 0, false
	}
	switch s := entry[0].(type) {
	case Outage:
		return time.Duration(s), true
	case Action:
		return 0, s == Refuse
	}
	return 0, false
}

// check panics if an entry cannot be played. A script is part of a test's text,
// so a wrong one is a programmer's error.
func check(entry []Step) {
	for _, s := range entry {
		if s == nil {
			panic("eventsourcetest: a Step of the script is nil")
		}
		if _, ok := refuses([]Step{s}); ok && len(entry) > 1 {
			panic(standsAlone(s))
		}
		if o, ok := s.(Outage); ok && o <= 0 {
			panic("eventsourcetest: an Outage must be longer than zero")
		}
	}
}

func standsAlone(s Step) string {
	return fmt.Sprintf("eventsourcetest: %T %v must be the only Step of its entry", s, s)
}
