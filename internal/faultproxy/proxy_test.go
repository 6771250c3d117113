package faultproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/internal/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server that calls f for each connection, and returns its address.
func serve(t *testing.T, f func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			})
		}
	})
	return l.Addr().String()
}

// start starts a proxy that does one fault to all connections.
func start(t *testing.T, target string, f faultproxy.Fault) *faultproxy.Proxy {
	t.Helper()
	p := faultproxy.Start(target, func(int) faultproxy.Fault { return f })
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *faultproxy.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "?"); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// hear reads what dial has sent.
func hear(c net.Conn) { io.ReadFull(c, make([]byte, 1)) }

// readN reads exactly n bytes.
func readN(t *testing.T, r io.Reader, n int) string {
	t.Helper()
	p := make([]byte, n)
	if m, err := io.ReadFull(r, p); err != nil {
		t.Fatalf("read %q, then %v; want %d bytes", p[:m], err, n)
	}
	return string(p)
}

// readAll reads to the end and tells what it was.
func readAll(r io.Reader) (string, string) {
	p, err := io.ReadAll(r)
	switch {
	case err == nil:
		return string(p), "end"
	case errors.Is(err, syscall.ECONNRESET):
		return string(p), "reset"
	}
	return string(p), err.Error()
}

const digits = "0123456789"

// sendDigits is a server that sends ten bytes at once and stays.
func sendDigits(left chan<- error) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		hear(c)
		io.WriteString(c, digits)
		_, err := c.Read(make([]byte, 1))
		left <- err
	}
}

func echo(c *net.TCPConn) {
	hear(c)
	io.Copy(c, c)
}

// TestEnds cuts and resets after every number of bytes: the client reads exactly
// those, and the server's connection ends too.
func TestEnds(t *testing.T) {
	for n := range len(digits) + 1 {
		for end, fault := range map[string]faultproxy.Fault{"end": faultproxy.Cut(n), "reset": faultproxy.Reset(n)} {
			t.Run(fault.String(), func(t *testing.T) {
				left := make(chan error, 1)
				p := start(t, serve(t, sendDigits(left)), fault)
				got, gotEnd := readAll(dial(t, p))
				if got != digits[:n] || gotEnd != end {
					t.Errorf("the client read %q, then %s; want %q, then %s", got, gotEnd, digits[:n], end)
				}
				if n == 0 {
					return // the server was not dialled
				}
				if err := <-left; err == nil {
					t.Error("the server's connection did not end")
				}
			})
		}
	}
}

// TestForward: both directions, all bytes, and the way in which the server ends.
func TestForward(t *testing.T) {
	large := strings.Repeat(digits, 100_000)
	for name, end := range map[string]func(*net.TCPConn){
		"end":   func(c *net.TCPConn) { c.Close() },
		"reset": func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			received := make(chan string, 1)
			target := serve(t, func(c *net.TCPConn) {
				hear(c)
				go io.WriteString(c, large)
				received <- readN(t, c, len(large))
				// The client says that it has all, so that a reset loses nothing.
				readN(t, c, 1)
				end(c)
			})
			p := start(t, target, faultproxy.Fault{})
			c := dial(t, p)
			go io.WriteString(c, large)
			if got := readN(t, c, len(large)); got != large {
				t.Error("the client read something else than was sent")
			}
			if got := <-received; got != large {
				t.Error("the server read something else than was sent")
			}
			io.WriteString(c, "x")
			if got, gotEnd := readAll(c); got != "" || gotEnd != name {
				t.Errorf("then the client read %q, then %s; want %s", got, gotEnd, name)
			}
		})
	}
}

// TestClientLeaves: the server sees it, whatever is done to the other direction.
func TestClientLeaves(t *testing.T) {
	for _, fault := range []faultproxy.Fault{
		{}, faultproxy.Stall(4), faultproxy.Throttle(4, time.Hour, clock.NewFake(time.Time{})),
	} {
		t.Run(fault.String(), func(t *testing.T) {
			left := make(chan error, 1)
			p := start(t, serve(t, sendDigits(left)), fault)
			c := dial(t, p)
			readN(t, c, 4)
			c.Close()
			if err := <-left; err == nil {
				t.Error("the server's connection did not end")
			}
			awaitOpen(t, p, 0)
		})
	}
}

func awaitOpen(t *testing.T, p *faultproxy.Proxy, n int) {
	t.Helper()
	err := p.Await(t.Context(), func(c faultproxy.Counts) bool { return c.Open == n })
	if err != nil {
		t.Fatalf("waiting for %d open connections: %v", n, err)
	}
}

// TestStall: after four of ten bytes that were sent at once nothing comes, until
// the rest is let through.
func TestStall(t *testing.T) {
	t.Run("then cut", func(t *testing.T) {
		p := start(t, serve(t, sendDigits(make(chan error, 1))), faultproxy.Stall(4))
		c := dial(t, p)
		readN(t, c, 4)
		p.Inject(faultproxy.Cut(0))
		if got, end := readAll(c); got != "" || end != "end" {
			t.Errorf("after the stall the client read %q, then %s; want only the end", got, end)
		}
	})
	t.Run("then forward", func(t *testing.T) {
		p := start(t, serve(t, sendDigits(make(chan error, 1))), faultproxy.Stall(4))
		c := dial(t, p)
		readN(t, c, 4)
		p.Inject(faultproxy.Fault{})
		if got := readN(t, c, 6); got != digits[4:] {
			t.Errorf("after the stall the client read %q, want the rest", got)
		}
	})
}

// TestHalfOpen: the server's connection ends, the client's does not; the proxy sees
// the client leave.
func TestHalfOpen(t *testing.T) {
	left := make(chan error, 2)
	p := start(t, serve(t, sendDigits(left)), faultproxy.HalfOpen(4))
	c1, c2 := dial(t, p), dial(t, p)
	for _, c := range []net.Conn{c1, c2} {
		readN(t, c, 4)
		if err := <-left; err == nil {
			t.Error("the server's connection did not end")
		}
	}
	// What the client sends goes nowhere, without an error.
	for range 10 {
		if _, err := io.WriteString(c1, digits); err != nil {
			t.Errorf("write to a half-open connection: %v", err)
		}
	}
	if got := p.Counts(); got != (faultproxy.Counts{Accepted: 2, Open: 2}) {
		t.Errorf("counts = %+v, want both open", got)
	}
	io.WriteString(c2, digits)
	c2.Close()
	awaitOpen(t, p, 1)
	p.Inject(faultproxy.Reset(0))
	if got, end := readAll(c1); got != "" || end != "reset" {
		t.Errorf("then the client read %q, then %s; want nothing, then the reset", got, end)
	}
	awaitOpen(t, p, 0)
}

// TestBlackHole: no server is dialled, and the client is told nothing, until
// something else is injected.
func TestBlackHole(t *testing.T) {
	t.Run("from the start", func(t *testing.T) {
		dialled := make(chan struct{}, 1)
		p := start(t, serve(t, func(*net.TCPConn) { dialled <- struct{}{} }), faultproxy.BlackHole())
		c := dial(t, p)
		io.WriteString(c, "hello")
		awaitOpen(t, p, 1)
		p.Inject(faultproxy.Reset(0))
		if got, end := readAll(c); got != "" || end != "reset" {
			t.Errorf("the client read %q, then %s; want nothing, then the reset", got, end)
		}
		select {
		case <-dialled:
			t.Error("the server was dialled")
		default:
		}
	})
	t.Run("both directions, for a time", func(t *testing.T) {
		p := start(t, serve(t, echo), faultproxy.Fault{})
		c := dial(t, p)
		io.WriteString(c, "1")
		readN(t, c, 1)
		p.Inject(faultproxy.BlackHole())
		io.WriteString(c, "2")
		p.Inject(faultproxy.Fault{})
		io.WriteString(c, "3")
		if got := readN(t, c, 2); got != "23" {
			t.Errorf("the echo is %q, want 23", got)
		}
	})
	t.Run("kept from the server", func(t *testing.T) {
		received := make(chan string, 2)
		p := start(t, serve(t, func(c *net.TCPConn) {
			var got strings.Builder
			io.Copy(io.MultiWriter(c, &got), c)
			received <- got.String()
		}), faultproxy.Fault{})
		c := dial(t, p)
		io.WriteString(c, "1")
		readN(t, c, 2)
		p.Inject(faultproxy.BlackHole())
		io.WriteString(c, "2")
		// Another connection, which is not in the hole, shows that the proxy has
		// had the time to forward.
		other := dial(t, p)
		readN(t, other, 1)
		for range 20 {
			io.WriteString(other, "x")
			readN(t, other, 1)
		}
		p.Inject(faultproxy.Cut(0))
		if got, end := readAll(c); got != "" || end != "end" {
			t.Errorf("the client read %q, then %s; want only the end", got, end)
		}
		got := map[string]bool{<-received: true, <-received: true}
		if !got["?1"] {
			t.Errorf("the servers received %v, want ?1 and no more on the connection in the hole", got)
		}
	})
}

// TestThrottle reads ten bytes in portions of four, one each minute of a fake
// clock, and then cuts a wait short.
func TestThrottle(t *testing.T) {
	fake := clock.NewFake(time.Time{})
	p := start(t, serve(t, sendDigits(make(chan error, 2))), faultproxy.Throttle(4, time.Minute, fake))
	c := dial(t, p)
	pending := func() {
		t.Helper()
		if err := fake.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if d, _ := fake.Next(); d != time.Minute {
			t.Errorf("the next portion is due in %v, want a minute", d)
		}
	}
	for _, want := range []string{"0123", "4567"} {
		if got := readN(t, c, 4); got != want {
			t.Errorf("read %q, want %q", got, want)
		}
		pending()
		fake.Advance(time.Minute)
	}
	if got := readN(t, c, 2); got != "89" {
		t.Errorf("read %q, want 89", got)
	}

	c = dial(t, p)
	readN(t, c, 4)
	pending()
	p.Inject(faultproxy.Cut(0))
	if got, end := readAll(c); got != "" || end != "end" {
		t.Errorf("in the wait it was cut, but the client read %q, then %s", got, end)
	}
	if d, ok := fake.Next(); ok {
		t.Errorf("a timer is left, due in %v", d)
	}
}

// TestInjectWakes: a fault comes at once, also where the proxy is blocked: reading
// from a silent server, or writing to a client that does not read.
func TestInjectWakes(t *testing.T) {
	t.Run("silent server", func(t *testing.T) {
		p := start(t, serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) }), faultproxy.Fault{})
		c := dial(t, p)
		awaitOpen(t, p, 1)
		p.Inject(faultproxy.Reset(0))
		if got, end := readAll(c); got != "" || end != "reset" {
			t.Errorf("the client read %q, then %s; want the reset", got, end)
		}
	})
	t.Run("client that does not read", func(t *testing.T) {
		var sent atomic.Int64
		left := make(chan error, 1)
		p := start(t, serve(t, func(c *net.TCPConn) {
			for {
				n, err := c.Write(make([]byte, 64<<10))
				sent.Add(int64(n))
				if err != nil {
					left <- err
					return
				}
			}
		}), faultproxy.Fault{})
		c := dial(t, p)
		// The server is blocked once it has sent nothing more for a long while. Were
		// that judged too soon, the test would show less, but pass.
		for before, still := int64(0), 0; before == 0 || still < 10_000; still++ {
			if now := sent.Load(); now != before {
				before, still = now, 0
			}
			runtime.Gosched()
		}
		p.Inject(faultproxy.Reset(0))
		if err := <-left; err == nil {
			t.Error("the server's connection did not end")
		}
		if _, end := readAll(c); end != "reset" {
			t.Errorf("the client's connection ended with %s, want a reset", end)
		}
	})
}

// TestInjectCounts: bytes are counted from the injection on.
func TestInjectCounts(t *testing.T) {
	more := make(chan struct{})
	p := start(t, serve(t, func(c *net.TCPConn) {
		io.WriteString(c, digits)
		<-more
		io.WriteString(c, digits)
		io.Copy(io.Discard, c)
	}), faultproxy.Reset(100))
	c := dial(t, p)
	readN(t, c, 10)
	p.Inject(faultproxy.Reset(3))
	close(more)
	if got, end := readAll(c); got != "012" || end != "reset" {
		t.Errorf("the client read %q, then %s; want 012, then the reset", got, end)
	}
}

// TestPlan: each connection gets the fault that the plan has for its number.
func TestPlan(t *testing.T) {
	p := faultproxy.Start(serve(t, sendDigits(make(chan error, 10))), func(n int) faultproxy.Fault {
		return faultproxy.Cut(n)
	})
	defer p.Close()
	for n := 1; n <= 4; n++ {
		if got, _ := readAll(dial(t, p)); got != digits[:n] {
			t.Errorf("connection %d brought %q, want %q", n, got, digits[:n])
		}
	}
	if got := p.Counts().Accepted; got != 4 {
		t.Errorf("%d connections counted, want 4", got)
	}
}

// TestDownAndUp: dials are refused while the proxy is down, on a port that stays
// the same; a connection that was open stays so.
func TestDownAndUp(t *testing.T) {
	p := start(t, serve(t, echo), faultproxy.Fault{})
	c := dial(t, p)
	addr := p.Addr()
	for range 3 {
		p.Down()
		p.Down()
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial while down: %v, want refused", err)
		}
		io.WriteString(c, "x")
		readN(t, c, 1)
		for range 2 {
			if err := p.Up(); err != nil {
				t.Fatal(err)
			}
		}
		if p.Addr() != addr {
			t.Fatalf("address = %s after Up, want %s", p.Addr(), addr)
		}
		again := dial(t, p)
		io.WriteString(again, "x")
		readN(t, again, 1)
	}
}

// TestNoServer: a connection that cannot be forwarded is reset.
func TestNoServer(t *testing.T) {
	p := start(t, "127.0.0.1:1", faultproxy.Fault{}) // a port that nobody listens on
	if got, end := readAll(dial(t, p)); got != "" || end != "reset" {
		t.Errorf("the client read %q, then %s; want the reset", got, end)
	}
}

// TestClose ends connections in every state, and nothing works afterwards.
func TestClose(t *testing.T) {
	faults := []faultproxy.Fault{
		{},
		faultproxy.Cut(4), faultproxy.Stall(4), faultproxy.HalfOpen(4), faultproxy.BlackHole(),
		faultproxy.Throttle(4, time.Hour, nil),
	}
	p := faultproxy.Start(serve(t, sendDigits(make(chan error, len(faults)))), func(n int) faultproxy.Fault {
		return faults[n-1]
	})
	for _, f := range faults {
		c := dial(t, p)
		if f != faultproxy.BlackHole() {
			readN(t, c, 4)
		}
	}
	err := p.Await(t.Context(), func(c faultproxy.Counts) bool { return c.Accepted == len(faults) })
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.Close()
	if got, want := p.Counts(), (faultproxy.Counts{Accepted: len(faults)}); got != want {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
	if err := p.Up(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Up after Close: %v, want net.ErrClosed", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Close: %v, want refused", err)
	}
}

func TestAwaitContext(t *testing.T) {
	p := start(t, "127.0.0.1:1", faultproxy.Fault{})
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := p.Await(ctx, func(faultproxy.Counts) bool { return false }); !errors.Is(err, cause) {
		t.Errorf("Await with a context that is done: %v, want its cause", err)
	}
}

// TestString is what a failing test shows.
func TestString(t *testing.T) {
	var got []string
	for _, f := range []fmt.Stringer{
		faultproxy.Fault{},
		faultproxy.Cut(1), faultproxy.Reset(2), faultproxy.Stall(3), faultproxy.HalfOpen(4),
		faultproxy.BlackHole(), faultproxy.Throttle(0, time.Second, nil),
	} {
		got = append(got, f.String())
	}
	want := []string{
		"forward", "cut after 1 bytes", "reset after 2 bytes", "stall after 3 bytes", "half open after 4 bytes",
		"black hole", "1 bytes each 1s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
