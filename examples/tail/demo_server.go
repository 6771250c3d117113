package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The demo server publishes readings, numbered from 1, at a steady pace, whether
// or not anybody listens. The number is the event ID, so a client that comes back
// with a Last-Event-ID is sent exactly what it missed.
const (
	burst    = 12                     // readings that exist when the client first comes
	interval = 400 * time.Millisecond // between two readings after that
	live     = 6                      // readings sent as they appear, on a connection that stays open
)

// reading is the data of reading n.
func reading(n int) string {
	return fmt.Sprintf("reading %2d: %.1f °C", n, 20+3*math.Sin(float64(n)/4))
}

// A scene is what the server does with one connection.
type scene struct {
	name    string
	asked   time.Duration  // how long the client has to wait afterwards
	exactly bool           // it must not wait longer than that either
	play    func(*session) // sends the response, up to its end
}

const (
	shortWait = 1500 * time.Millisecond
	busyWait  = 2 * time.Second
	longWait  = 24 * time.Hour
)

// scenes is the script: one scene for each connection, in order.
var scenes = []scene{
	{
		name: "broke inside an event",
		play: func(s *session) {
			s.say("sends %d readings at once, then each as it appears", burst)
			s.catchUp()
			s.follow(live)
			s.say("breaks the connection inside reading %d", s.next)
			half, _, _ := strings.Cut(reading(s.next), ":")
			s.write(fmt.Sprintf("id: %d\ndata: %s", s.next, half))
			panic(http.ErrAbortHandler) // closes the connection without a word
		},
	},
	{
		name:    "closed, retry: 1500",
		asked:   shortWait,
		exactly: true,
		play: func(s *session) {
			s.say("goes on with reading %d", s.next)
			s.catchUp()
			s.follow(live)
			s.say("closes cleanly and asks for 1.5s")
			s.retry(shortWait)
		},
	},
	{
		name:    "503, Retry-After: 2",
		asked:   busyWait,
		exactly: true,
		play: func(s *session) {
			s.say("answers 503 and asks for 2s")
			s.refuse(http.StatusServiceUnavailable, busyWait)
		},
	},
	{
		name:  "closed, primed but empty",
		asked: shortWait, // from the scene before: a reconnection time outlives its connection
		play: func(s *session) {
			s.say("sends an event ID without data and closes")
			s.write(fmt.Sprintf("id: %d\ndata:\n\n", s.next-1))
		},
	},
	{
		name:  "closed, retry: 86400000",
		asked: longWait,
		play: func(s *session) {
			s.say("goes on with reading %d", s.next)
			s.catchUp()
			s.follow(live)
			s.server.finish()
			s.catchUp()
			s.say("closes cleanly and asks for a whole day")
			s.retry(longWait)
		},
	},
}

// A visit is the server's record of one connection.
type visit struct {
	lastEventID string    // as received
	due         string    // what it should have been: the ID of the last event that was sent completely
	arrived     time.Time // when the request came
	left        time.Time // just before the response ended; zero until then
}

// A demoServer plays the scenes and keeps a record of each visit. It is an
// http.Handler for one client.
type demoServer struct {
	log     func(text string) // says what the server does
	playing sync.WaitGroup    // the scenes that are being played

	mu     sync.Mutex
	start  time.Time // of the readings; zero before the first visit
	final  int       // the last reading of all; 0 if there is no end yet
	sent   int       // the last reading that was sent completely
	visits []visit
}

func (d *demoServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d.playing.Add(1)
	defer d.playing.Done()
	number := d.arrive(req)
	defer d.leave(number) // also when the scene panics
	s := &session{server: d, ctx: req.Context(), w: w, next: 1}
	if n, err := strconv.Atoi(req.Header.Get("Last-Event-ID")); err == nil {
		s.next = n + 1
	}
	if number >= len(scenes) {
		s.say("has no scene for another connection")
		s.refuse(http.StatusGone, 0)
		return
	}
	scenes[number].play(s)
}

// arrive records a visit and returns its number, from 0.
func (d *demoServer) arrive(req *http.Request) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := visit{lastEventID: req.Header.Get("Last-Event-ID"), arrived: time.Now()}
	if d.sent > 0 {
		v.due = strconv.Itoa(d.sent)
	}
	if d.start.IsZero() {
		d.start = v.arrived
	}
	d.visits = append(d.visits, v)
	return len(d.visits) - 1
}

func (d *demoServer) leave(number int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visits[number].left = time.Now()
}

// published returns how many readings there are now.
func (d *demoServer) published() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.publishedLocked()
}

func (d *demoServer) publishedLocked() int {
	if d.final > 0 {
		return d.final
	}
	return burst + int(time.Since(d.start)/interval)
}

// due returns the time until reading n is published.
func (d *demoServer) due(n int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.start.Add(time.Duration(n-burst) * interval))
}

// finish ends the publishing: there are no readings after those published by now.
func (d *demoServer) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.final = d.publishedLocked()
}

// record returns the visits and the number of readings published.
func (d *demoServer) record() (visits []visit, published int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(visits, d.visits...), d.publishedLocked()
}

// A session is a connection that is being served.
type session struct {
	server *demoServer
	ctx    context.Context
	w      http.ResponseWriter
	next   int // the reading to send next
}

func (s *session) say(format string, args ...any) {
	s.server.log(fmt.Sprintf(format, args...))
}

// write sends a piece of the event stream at once. It ignores errors: a client that
// has gone shows in the summary.
func (s *session) write(text string) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(s.w, text)
	_ = http.NewResponseController(s.w).Flush()
}

// catchUp sends what has been published but not yet sent, in one piece.
func (s *session) catchUp() {
	var b strings.Builder
	last := s.server.published()
	if s.next > last {
		return
	}
	for n := s.next; n <= last; n++ {
		fmt.Fprintf(&b, "id: %d\ndata: %s\n\n", n, reading(n))
	}
	s.write(b.String())
	s.next = last + 1
	s.server.mu.Lock()
	s.server.sent = last
	s.server.mu.Unlock()
}

// follow sends the next n readings, each when it is published. It stops early if the
// client leaves.
func (s *session) follow(n int) {
	for range n {
		timer := time.NewTimer(s.server.due(s.next))
		select {
		case <-timer.C:
			s.catchUp()
		case <-s.ctx.Done():
			timer.Stop()
			panic(http.ErrAbortHandler)
		}
	}
}

// retry sets the client's reconnection time.
func (s *session) retry(d time.Duration) {
	s.write(fmt.Sprintf("retry: %d\n\n", d.Milliseconds()))
}

// refuse answers with a status instead of a stream.
func (s *session) refuse(status int, retryAfter time.Duration) {
	if retryAfter > 0 {
		s.w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	http.Error(s.w, http.StatusText(status), status)
}
