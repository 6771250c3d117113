package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errs reports which of the errors that matter err is.
func errs(err error) string {
	var op *net.OpError
	var call *os.SyscallError
	switch {
	case err == nil:
		return "nil"
	case err == io.EOF: // net/http compares so
		return "EOF"
	case !errors.As(err, &op):
		return "no *net.OpError: " + err.Error()
	case errors.Is(err, net.ErrClosed):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded) && op.Timeout():
		return "timeout"
	case !errors.As(err, &call):
		return "no *os.SyscallError: " + err.Error()
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EPIPE):
		return "broken pipe"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	return err.Error()
}

// read reads until an error.
func read(c net.Conn) (string, string) {
	var b bytes.Buffer
	_, err := b.ReadFrom(c)
	if err == nil {
		err = io.EOF
	}
	return b.String(), errs(err)
}

// TestClose closes one end in each way and shows what both ends get.
func TestClose(t *testing.T) {
	type ends struct{ Data, PeerRead, PeerWrite, OwnRead, OwnWrite string }
	for _, test := range []struct {
		name  string
		close func(*memnet.Conn)
		want  ends
	}{
		{
			"close", func(c *memnet.Conn) { c.Close() },
			ends{"sent", "EOF", "broken pipe", "closed", "closed"},
		},
		{
			"reset", func(c *memnet.Conn) { c.SetLinger(0); c.Close() },
			ends{"sent", "reset", "reset", "closed", "closed"},
		},
		{
			"linger undone", func(c *memnet.Conn) { c.SetLinger(0); c.SetLinger(-1); c.Close() },
			ends{"sent", "EOF", "broken pipe", "closed", "closed"},
		},
		{
			"reset after close", func(c *memnet.Conn) { c.Close(); c.SetLinger(0); c.Close() },
			ends{"sent", "EOF", "broken pipe", "closed", "closed"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := memnet.Pipe()
			for _, c := range []*memnet.Conn{a, b} {
				if _, err := io.WriteString(c, "sent"); err != nil {
					t.Fatal(err)
				}
			}
			test.close(a)
			var got ends
			got.Data, got.PeerRead = read(b)
			_, err := b.Write([]byte("x"))
			got.PeerWrite = errs(err)
			_, err = a.Read(make([]byte, 1))
			got.OwnRead = errs(err)
			_, err = a.Write([]byte("x"))
			got.OwnWrite = errs(err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			b.Close()
			if _, err := b.Read(make([]byte, 1)); errs(err) != "closed" {
				t.Errorf("read after closing the other end too: %v, want closed", err)
			}
			if _, err := b.Write([]byte("x")); errs(err) != "closed" {
				t.Errorf("write after closing the other end too: %v, want closed", err)
			}
		})
	}
}

// TestBuffer: a write waits exactly when BufferSize bytes are unread, and goes on
// as they are read; nothing is lost or reordered.
func TestBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memnet.Pipe()
		data := strings.Repeat("0123456789", memnet.BufferSize/10*3)
		if n, err := io.WriteString(a, data[:memnet.BufferSize]); n != memnet.BufferSize || err != nil {
			t.Fatalf("filling the buffer: %d, %v", n, err)
		}
		done := false
		go func() {
			if n, err := io.WriteString(a, data[memnet.BufferSize:]); n != len(data)-memnet.BufferSize || err != nil {
				t.Errorf("the rest: %d, %v", n, err)
			}
			done = true
			a.Close()
		}()
		synctest.Wait()
		if done {
			t.Error("a write into a full buffer did not wait")
		}
		got, end := read(b)
		if got != data || end != "EOF" {
			t.Errorf("read %d bytes, then %s; want the %d sent, then EOF", len(got), end, len(data))
		}
		b.Close()
	})
}

// TestCloseWakes: closing either end wakes what is blocked on both.
func TestCloseWakes(t *testing.T) {
	for _, test := range []struct {
		name          string
		own           bool
		reads, writes string
	}{
		{"own end", true, "closed", "closed"},
		{"other end", false, "EOF", "broken pipe"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := memnet.Pipe()
				defer a.Close()
				defer b.Close()
				if _, err := a.Write(make([]byte, memnet.BufferSize)); err != nil {
					t.Fatal(err)
				}
				results := make(chan string, 2)
				go func() {
					_, err := a.Read(make([]byte, 1))
					results <- "read: " + errs(err)
				}()
				synctest.Wait()
				go func() {
					_, err := a.Write([]byte("x"))
					results <- "write: " + errs(err)
				}()
				synctest.Wait()
				if test.own {
					a.Close()
				} else {
					b.Close()
				}
				got := map[string]bool{<-results: true, <-results: true}
				want := map[string]bool{"read: " + test.reads: true, "write: " + test.writes: true}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestDeadlines: deadlines in the past, in the future, moved, and lifted.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memnet.Pipe()
		defer a.Close()
		defer b.Close()
		start := time.Now()
		after := func(op func() error) (time.Duration, string) {
			err := op()
			d := time.Since(start)
			start = time.Now()
			return d, errs(err)
		}
		expect := func(what string, wantAfter time.Duration, want string, op func() error) {
			t.Helper()
			if d, got := after(op); d != wantAfter || got != want {
				t.Errorf("%s: %s after %v, want %s after %v", what, got, d, want, wantAfter)
			}
		}
		readOne := func() error { _, err := a.Read(make([]byte, 1)); return err }
		write := func() error { _, err := a.Write(make([]byte, memnet.BufferSize+1)); return err }

		a.SetReadDeadline(time.Now().Add(time.Second))
		expect("read deadline", time.Second, "timeout", readOne)
		expect("read after the deadline", 0, "timeout", readOne)
		a.SetDeadline(time.Now().Add(2 * time.Second))
		expect("read under both", 2*time.Second, "timeout", readOne)
		expect("write under both", 0, "timeout", write)
		a.SetWriteDeadline(time.Now().Add(3 * time.Second))
		expect("write deadline", 3*time.Second, "timeout", write)

		a.SetReadDeadline(time.Now().Add(time.Second))
		a.SetReadDeadline(time.Now().Add(5 * time.Second))
		expect("a later deadline replaces an earlier one", 5*time.Second, "timeout", readOne)

		a.SetReadDeadline(time.Now().Add(time.Second))
		a.SetReadDeadline(time.Time{})
		time.AfterFunc(10*time.Second, func() { b.Write([]byte("x")) })
		expect("lifted", 10*time.Second, "nil", readOne)

		time.AfterFunc(time.Second, func() { a.SetReadDeadline(time.Unix(1, 0)) })
		expect("a deadline in the past wakes a read", time.Second, "timeout", readOne)
	})
}

// TestListener: a dial meets Accept; both fail for their own reasons.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.Listen()
		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Errorf("Accept: %v", err)
				return
			}
			io.WriteString(c, "hello")
			c.Close()
		}()
		c, err := l.DialContext(t.Context(), "tcp", "any.host:80")
		if err != nil {
			t.Fatal(err)
		}
		if got, end := read(c); got != "hello" || end != "EOF" {
			t.Errorf("read %q, then %s", got, end)
		}
		c.Close()

		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if _, err := l.DialContext(ctx, "tcp", "a:1"); !errors.Is(err, cause) {
			t.Errorf("dial that nobody accepts: %v, want the context's cause", err)
		}

		go func() {
			synctest.Wait()
			l.Close()
			l.Close()
		}()
		if _, err := l.Accept(); errs(err) != "closed" {
			t.Errorf("Accept while the listener is closed: %v", err)
		}
		if _, err := l.Accept(); errs(err) != "closed" {
			t.Errorf("Accept after that: %v", err)
		}
		_, err = l.DialContext(t.Context(), "tcp", "a:1")
		if got, want := errs(err), "refused"; got != want {
			t.Errorf("dial: %v, want refused", err)
		}
	})
}
