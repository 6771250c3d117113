package eventsource_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/faultproxy"
	"github.com/reprise-sse/reprise/internal/h2test"
	"github.com/reprise-sse/reprise/policy"
)

// A faultyPath is a stream from a server on a socket through a proxy that breaks
// connections. The stream's clock is a Fake, which moves past waits by itself and
// otherwise when the test says so.
type faultyPath struct {
	*Server
	proxy  *faultproxy.Proxy
	clock  *clock.Fake
	client eventsource.Client
	watcher

	transport *http.Transport
	sent      chan struct{} // a request has been written

	events chan string // data of the events; closed after the last
	err    error       // once events is closed
	leave  context.CancelFunc
}

// newFaultyPath starts a server and a proxy that does with the n-th connection,
// from 1, what the plan says.
func newFaultyPath(t *testing.T, plan func(n int) faultproxy.Fault, script ...[]Step) *faultyPath {
	t.Helper()
	p := &faultyPath{
		Server: start(t, &Server{Loopback: true, Script: script}),
		clock:  clock.NewFake(time.Time{}),
	}
	target, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.proxy = faultproxy.Start(target.Host, plan)
	t.Cleanup(p.proxy.Close)
	p.transport, p.sent = &http.Transport{}, make(chan struct{}, 1)
	t.Cleanup(p.transport.CloseIdleConnections)
	p.client = eventsource.Client{
		HTTPClient: &http.Client{Transport: roundTripperFunc(p.roundTrip)}, Policy: strict, Clock: p.clock, Trace: func(*http.Request) *eventsource.Trace { return p.advancing(p.clock) },
	}
	return p
}

// roundTrip tells when a request has been written. A connection that is given up
// while it is dialled would be left to the next attempt, with its fault.
func (p *faultyPath) roundTrip(req *http.Request) (*http.Response, error) {
	return p.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) {
			select {
			case p.sent <- struct{}{}:
			default:
			}
		},
	})))
}

// firstOnly is the plan that has one fault for the first connection.
func firstOnly(f faultproxy.Fault) func(int) faultproxy.Fault {
	return func(n int) faultproxy.Fault {
		if n == 1 {
			return f
		}
		return faultproxy.Fault{}
	}
}

// run ranges over the stream on a goroutine of its own.
func (p *faultyPath) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p.leave = cancel
	p.events = make(chan string)
	stream := p.client.Stream(request(ctx, t, "http://"+p.proxy.Addr()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.events)
		for ev, err := range stream.Events() {
			if err != nil {
				p.err = err
				return
			}
			select {
			case p.events <- ev.Data:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// rest returns the events up to the end of the stream.
func (p *faultyPath) rest() (data []string) {
	for d := range p.events {
		data = append(data, d)
	}
	return data
}

// pass waits until n timers are pending, and lets the time d pass.
func (p *faultyPath) pass(t *testing.T, n int, d time.Duration) {
	t.Helper()
	if err := p.clock.Wait(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	p.clock.Advance(d)
}

// throttled returns the next event of a stream that has no timer of its own
// pending, and how long the proxy has let it wait.
func (p *faultyPath) throttled(t *testing.T) (data string, took time.Duration) {
	t.Helper()
	from := p.clock.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var moving sync.WaitGroup
	moving.Go(func() {
		for p.clock.Wait(ctx, 1) == nil {
			if d, ok := p.clock.Next(); ok {
				p.clock.Advance(d)
			}
		}
	})
	data = <-p.events
	cancel()
	moving.Wait()
	return data, p.clock.Now().Sub(from)
}

// TestFaultAtEveryByte cuts off a stream of three events after each byte of its
// response, header and chunks included, with a reset and with a proper end of the
// connection. Each event arrives once.
func TestFaultAtEveryByte(t *testing.T) {
	events := []Step{
		Send("id: 1\nevent: tick\ndata: é\n\n"), Send("id: 2\r\ndata: b\r\ndata: c\r\n\r\n"), Send(": x\nid: 3\ndata: d\n\n"),
	}
	replay := Do(func(c *Conn) {
		last, _ := strconv.Atoi(c.Request().LastEventID)
		c.Play(events[last:]...)
	})
	// To read the events and no further is the consumer's part, so the stream ends
	// when it has seen the third.
	for name, fault := range map[string]func(int) faultproxy.Fault{"Reset": faultproxy.Reset, "Cut": faultproxy.Cut} {
		t.Run(name, func(t *testing.T) {
			kinds := make(map[policy.Kind]int)
			offsets := 0
			for reached := true; reached; offsets++ {
				p := newFaultyPath(t, firstOnly(fault(offsets)), []Step{replay, Stall}, []Step{replay, Stall})
				var data []string
				for ev, err := range p.client.Stream(request(t.Context(), t, "http://"+p.proxy.Addr())).Events() {
					if err != nil {
						t.Fatalf("after %d bytes: %v", offsets, err)
					}
					data = append(data, ev.Data)
					if ev.Data == "d" {
						break
					}
				}
				if diff := cmp.Diff([]string{"é", "b\nc", "d"}, data); diff != "" {
					t.Fatalf("after %d bytes: events (-want +got):\n%s", offsets, diff)
				}
				reached = len(p.ends) > 0
				for _, a := range p.ends {
					kinds[a.Kind]++
					if a.Err == nil {
						t.Errorf("after %d bytes: attempt %d ended %v without an error", offsets, a.Number, a.Kind)
					}
				}
				if len(p.ends) > 1 || len(p.waits) != len(p.ends) || len(p.waits) == 1 && p.waits[0] != 3*time.Second {
					t.Errorf("after %d bytes: %d attempts have ended; waits %v", offsets, len(p.ends), p.waits)
				}
				p.proxy.Close()
				p.Close()
			}
			t.Logf("%d offsets: %v", offsets, kinds)
			if kinds[policy.Failed] < 50 || kinds[policy.Dropped] < 80 || len(kinds) != 2 {
				t.Errorf("the attempts ended %v, over %d offsets", kinds, offsets)
			}
		})
	}
}

// TestFaultCutWithoutLength cuts a body that only the end of the connection
// delimits, as HTTP/1.0 has it: TCP's proper end is then the proper end of the
// body, and what gives the cut away is the event that it went through.
func TestFaultCutWithoutLength(t *testing.T) {
	const head = "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	const text = "id: 1\ndata: a\n\nid: 2\ndata: b\n\n"
	server := rawServer(t, head+text)
	for n := range len(text) {
		proxy := faultproxy.Start(server, firstOnly(faultproxy.Cut(len(head)+n)))
		client := eventsource.Client{HTTPClient: &http.Client{Transport: &http.Transport{}}, Policy: policy.Never()}
		data, err := collect(client.Stream(request(t.Context(), t, "http://"+proxy.Addr())))
		whole := strings.LastIndex(text[:n], "\n\n") + 1 // where the last event that is whole ends
		inEvent := strings.Contains(text[whole:n], "\ndata")
		if len(data) != strings.Count(text[:n], "\n\n") || inEvent != errors.Is(err, eventsource.ErrTruncated) || !inEvent && err != nil {
			t.Errorf("after %q: %d events and %v", text[:n], len(data), err)
		}
		proxy.Close()
	}
}

// A connection is accepted and nothing more, so that the request is never answered; or
// the header of the response drips. Neither escapes the limit on connecting.
func TestFaultBeforeTheHeader(t *testing.T) {
	fake := clock.NewFake(time.Time{})
	for name, c := range map[string]struct {
		fault          faultproxy.Fault
		timeout, limit time.Duration
		pending        int // timers, while the header is waited for
		steps          time.Duration
	}{
		"black hole":   {faultproxy.BlackHole(), 0, 30 * time.Second, 1, 30 * time.Second},
		"byte by byte": {faultproxy.Throttle(1, time.Second, fake), 10 * time.Second, 10 * time.Second, 2, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFaultyPath(t, firstOnly(c.fault), []Step{Open, Stall}, []Step{numbered(1), End})
			if name == "black hole" { // which no request gets through
				p.Script = p.Script[1:]
			}
			p.clock, p.client.Clock = fake, fake
			p.client.Trace = func(*http.Request) *eventsource.Trace { return p.advancing(fake) }
			p.client.ConnectTimeout = c.timeout
			p.run(t)
			<-p.sent
			for passed := time.Duration(0); passed < c.limit; passed += c.steps {
				p.pass(t, c.pending, c.steps)
			}
			if diff := cmp.Diff([]string{"1"}, p.rest()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if a := p.ends[0]; a.Kind != policy.Failed || a.End.Sub(a.Start) != c.limit || !isTimeout(a.Err) {
				t.Errorf("the first attempt ended %v after %v with %v", a.Kind, a.End.Sub(a.Start), a.Err)
			}
		})
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestFaultOneByteAtATime takes a stream that comes at a byte a second. An event
// is there with its last byte; nothing waits for more.
func TestFaultOneByteAtATime(t *testing.T) {
	fake := clock.NewFake(time.Time{})
	p := newFaultyPath(t, firstOnly(faultproxy.Throttle(1, time.Second, fake)),
		[]Step{Send("id: 1\ndata: a\n\nid: 2\r\ndata: b\r\n\r\nid: 3\rdata: c\r\r"), Stall})
	p.clock, p.client.Clock = fake, fake
	p.client.Trace = func(*http.Request) *eventsource.Trace { return p.advancing(fake) }
	p.client.ConnectTimeout = -1
	p.run(t)
	var data []string
	took := time.Duration(0)
	for range 3 {
		event, d := p.throttled(t)
		data, took = append(data, event), took+d
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, data); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if took < 150*time.Second {
		t.Errorf("it took %v: too quick for so many bytes", took)
	}
}

// The server vanishes without a word, as after a power cut or behind a NAT that has
// forgotten the connection, or the path stalls. Only the idle timeout can tell, and
// what goes on within it is not disturbed.
func TestFaultSilence(t *testing.T) {
	const silence = 10 * time.Second
	for name, c := range map[string]struct {
		fault faultproxy.Fault
		idle  time.Duration
	}{
		"half open":                  {faultproxy.HalfOpen(0), 5 * time.Second},
		"stalled beyond the timeout": {faultproxy.Stall(0), 5 * time.Second},
		"stalled within it":          {faultproxy.Stall(0), 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			p := newFaultyPath(t, nil,
				[]Step{numbered(1), Do(func(c *Conn) {
					select {
					case <-gate:
					case <-c.Context().Done():
					}
				}), numbered(2), Stall},
				[]Step{numbered(2), Stall},
			)
			p.client.IdleTimeout = c.idle
			p.run(t)
			first := <-p.events
			p.proxy.Inject(c.fault)
			close(gate)
			p.pass(t, 1, min(silence, c.idle)) // once the read blocks
			want := []string{"none"}
			if c.idle > silence {
				p.proxy.Inject(faultproxy.Fault{})
			} else {
				want = append(want, "1")
			}
			if second := <-p.events; first != "1" || second != "2" {
				t.Errorf("events %q, %q", first, second)
			}
			p.leave()
			p.rest()
			if diff := cmp.Diff(want, sentIDs(p.Server)); diff != "" {
				t.Errorf("Last-Event-ID of the requests (-want +got):\n%s", diff)
			}
			for _, a := range p.ends {
				if a.Kind != policy.Idle || a.End.Sub(a.Open) != c.idle {
					t.Errorf("attempt %d ended %v after %v", a.Number, a.Kind, a.End.Sub(a.Open))
				}
			}
		})
	}
}

// TestFaultRefusedThenBack closes the server's port and opens it again: at the
// start, and after a stream was open.
func TestFaultRefusedThenBack(t *testing.T) {
	p := newFaultyPath(t, nil, []Step{numbered(1), Cut}, []Step{numbered(2), End})
	p.proxy.Down()
	trace := p.client.Trace(nil)
	wait := trace.Wait
	trace.Wait = func(i eventsource.WaitInfo) {
		switch i.Number {
		case 4, 8: // three were refused
			if err := p.proxy.Up(); err != nil {
				t.Error(err)
			}
		case 5:
			p.proxy.Down()
		}
		wait(i)
	}
	p.client.Trace = traceOf(trace)
	p.run(t)
	if diff := cmp.Diff([]string{"1", "2"}, p.rest()); diff != "" || p.err != nil {
		t.Errorf("error %v, events (-want +got):\n%s", p.err, diff)
	}
	var got []string
	for _, a := range p.ends {
		got = append(got, a.Kind.String())
		if a.Kind == policy.Failed && !errors.Is(a.Err, syscall.ECONNREFUSED) {
			t.Errorf("attempt %d: %v", a.Number, a.Err)
		}
	}
	want := []string{"failed", "failed", "failed", "dropped", "failed", "failed", "failed", "ended", "rejected"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(seconds(3, 6, 12, 3, 3, 6, 12, 3), p.waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

// TestFaultDNS has the host name unknown, then its server broken, then right: no
// failure of DNS is for good.
func TestFaultDNS(t *testing.T) {
	dns := startDNS(t)
	p := newFaultyPath(t, nil, []Step{numbered(1), End})
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", dns.addr)
	}}
	p.transport.DialContext = (&net.Dialer{Resolver: resolver}).DialContext
	trace := p.client.Trace(nil)
	wait := trace.Wait
	trace.Wait = func(i eventsource.WaitInfo) {
		dns.answer(map[int]int{2: nxDomain, 3: servFail}[i.Number]) // 0 is success
		wait(i)
	}
	p.client.Trace = traceOf(trace)
	dns.answer(nxDomain)
	_, port, err := net.SplitHostPort(p.proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	data, err := collect(p.client.Stream(request(t.Context(), t, "http://feed.test:"+port)))
	if diff := cmp.Diff([]string{"1"}, data); diff != "" || err != nil {
		t.Errorf("error %v, events (-want +got):\n%s", err, diff)
	}
	if len(p.ends) != 5 {
		t.Fatalf("%d attempts, want 5", len(p.ends))
	}
	for _, a := range p.ends[:3] {
		var failure *net.DNSError
		if a.Kind != policy.Failed || !errors.As(a.Err, &failure) || a.Permanent {
			t.Errorf("attempt %d ended %v with %v; permanent: %v", a.Number, a.Kind, a.Err, a.Permanent)
		} else if failure.IsNotFound != (a.Number < 3) {
			t.Errorf("attempt %d: not found: %v", a.Number, failure.IsNotFound)
		}
	}
	if diff := cmp.Diff(seconds(3, 6, 12, 3), p.waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

// Response codes of DNS (RFC 1035 §4.1.1).
const (
	servFail = 2
	nxDomain = 3
)

// A dnsServer resolves every name to 127.0.0.1, or fails to.
type dnsServer struct {
	addr string

	mu   sync.Mutex
	code int
}

func (s *dnsServer) answer(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = code
}

func startDNS(t *testing.T) *dnsServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{addr: conn.LocalAddr().String()}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		conn.Close()
		serving.Wait()
	})
	serving.Go(func() {
		buf := make([]byte, 4<<10)
		for {
			n, client, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			s.mu.Lock()
			code := s.code
			s.mu.Unlock()
			conn.WriteTo(respondDNS(buf[:n], code), client)
		}
	})
	return s
}

// respondDNS makes the response to a query of one question (RFC 1035 §4).
func respondDNS(query []byte, code int) []byte {
	const header, typeA = 12, 1
	end := header // of the question
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 1 + 4
	resp := append([]byte(nil), query[:end]...)
	binary.BigEndian.PutUint16(resp[2:], 0x8180|uint16(code)) // a response, recursion desired and available
	clear(resp[6:header])                                     // no records follow the question
	if code == 0 && binary.BigEndian.Uint16(query[end-4:]) == typeA {
		resp[7] = 1
		resp = append(resp, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return resp
}

// An h2play is what an HTTP/2 server does with the n-th request, from 1, on any
// of its connections. It returns the connections' end if that is due.
type h2play func(n int, c *h2test.Conn, s *h2test.Stream)

// serveHTTP2 starts an HTTP/2 server that plays; each stream on a goroutine of its
// own.
func serveHTTP2(t *testing.T, play h2play) *h2test.Server {
	var mu sync.Mutex
	n := 0
	srv := h2test.Start(func(c *h2test.Conn) {
		var streams sync.WaitGroup
		defer streams.Wait()
		for {
			s, err := c.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			n++
			number := n
			mu.Unlock()
			streams.Go(func() { play(number, c, s) })
		}
	})
	t.Cleanup(srv.Close)
	return srv
}

// An HTTP/2 server does what net/http's own never does, before
// the header, after an event and in the middle of one. Each is one attempt that has
// ended, with its wait, and the stream goes on from the last ID.
func TestHTTP2Faults(t *testing.T) {
	for name, c := range map[string]struct {
		fault      func(c *h2test.Conn, s *h2test.Stream)
		goesOn     bool // the stream does not notice
		reconnects bool // the next attempt is on another connection
		lossy      bool // TCP may lose what was sent before (Linux does not)
	}{
		"RST_STREAM INTERNAL_ERROR":    {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.InternalError) }},
		"RST_STREAM CANCEL":            {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.Cancel) }},
		"RST_STREAM ENHANCE_YOUR_CALM": {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.EnhanceYourCalm) }},
		"RST_STREAM REFUSED_STREAM":    {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.RefusedStream) }},
		"RST_STREAM PROTOCOL_ERROR":    {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.ProtocolError) }, reconnects: true},
		"GOAWAY, not processed": {
			fault: func(c *h2test.Conn, _ *h2test.Stream) { c.GoAway(0, h2test.NoError) }, reconnects: true,
		},
		"GOAWAY, then dropped": {
			fault: func(c *h2test.Conn, s *h2test.Stream) { c.GoAway(s.ID, h2test.EnhanceYourCalm); c.Close() }, reconnects: true, lossy: true,
		},
		"GOAWAY, goes on": {
			fault: func(c *h2test.Conn, s *h2test.Stream) { c.GoAway(s.ID, h2test.NoError) }, reconnects: true, goesOn: true,
		},
		"connection closed": {fault: func(c *h2test.Conn, _ *h2test.Stream) { c.Close() }, reconnects: true, lossy: true},
		"connection reset":  {fault: func(c *h2test.Conn, _ *h2test.Stream) { c.Reset() }, reconnects: true, lossy: true},
	} {
		for moment, sent := range map[string]string{
			"before the header": "-",
			"before an event":   "",
			"after an event":    "id: 1\ndata: a\n\n",
			"inside an event":   "id: 1\ndata: a\n\nid: 2\ndata: b",
		} {
			t.Run(name+"/"+moment, func(t *testing.T) {
				var mu sync.Mutex
				var on []int // the connection of each request
				srv := serveHTTP2(t, func(n int, conn *h2test.Conn, s *h2test.Stream) {
					mu.Lock()
					on = append(on, conn.Number)
					mu.Unlock()
					switch n {
					case 1:
						if sent != "-" {
							s.Respond(200, typed("text/event-stream"), false)
							s.Data(sent, false)
						}
						c.fault(conn, s)
						if c.goesOn {
							if sent == "-" {
								s.Respond(200, typed("text/event-stream"), false)
							}
							s.Data("\n\nid: 7\ndata: on\n\n", true)
						}
					case 2:
						s.Respond(200, typed("text/event-stream"), false)
						s.Data("id: 8\ndata: next\n\n", true)
					default:
						s.Respond(204, nil, true)
					}
				})
				fake := clock.NewFake(time.Time{})
				var w watcher
				var ids []string // that the requests had
				client := eventsource.Client{
					HTTPClient: srv.Client(), Policy: strict, Clock: fake, Trace: func(*http.Request) *eventsource.Trace { return w.advancing(fake) },
					Prepare: func(req *http.Request) error { ids = append(ids, req.Header.Get("Last-Event-ID")); return nil },
				}
				data, err := collect(client.Stream(request(t.Context(), t, srv.URL)))
				srv.Close() // its goroutines are done with the slice
				if err != nil {
					t.Fatal(err)
				}

				want, resumed := []string{"next"}, ""
				if strings.HasPrefix(sent, "id: 1") {
					want, resumed = []string{"a", "next"}, "1"
				}
				if c.goesOn {
					want = slices.Insert(want, len(want)-1, "on")
					if moment == "inside an event" {
						want = slices.Insert(want, len(want)-2, "b")
					}
					resumed = "7"
				}
				if len(on) != 3 {
					t.Fatalf("%d requests, want 3", len(on))
				}
				if lost := c.lossy && len(data) == 1; lost {
					want, resumed = []string{"next"}, ""
				}
				if diff := cmp.Diff(want, data); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if ids[1] != resumed {
					t.Errorf("resumed from %q, want %q", ids[1], resumed)
				}
				if sameConnection := on[1] == on[0]; sameConnection == c.reconnects {
					t.Errorf("the requests came on the connections %v", on)
				}
				kind := policy.Dropped
				switch {
				case c.goesOn:
					kind = policy.Ended
				case sent == "-":
					kind = policy.Failed
				}
				if first := w.ends[0]; first.Kind != kind || (first.Err == nil) != c.goesOn {
					t.Errorf("the first attempt ended %v with %v, want %v", first.Kind, first.Err, kind)
				}
				if diff := cmp.Diff(seconds(3, 3), w.waits); diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
			})
		}
	}
}
