package eventsource_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// TestNginx takes a stream with messages and heartbeats through nginx, which cuts it
// off after 100 ms of silence: 20 times, and each event arrives once. It takes two
// seconds, as nginx's time is the real one.
//
// It needs nginx, and fails without it where the variable CI is set.
func TestNginx(t *testing.T) {
	const cuts = 20
	var mu sync.Mutex // guards both
	arrived := sync.NewCond(&mu)
	published, received := 0, 0

	// Each of the first connections brings two new events, the second only when the
	// first has arrived: a front that holds back is found out. Then it is silent.
	// Should a slow machine let nginx cut one off before, the next one replays.
	connection := Do(func(c *Conn) {
		defer context.AfterFunc(c.Context(), arrived.Broadcast)()
		sent, _ := strconv.Atoi(c.Request().LastEventID)
		fresh := c.Request().Number <= cuts
		if !fresh && sent == 2*cuts {
			c.Play(Status{Code: http.StatusNoContent}, End)
			return
		}
		c.Play(Comment("hello"))
		for range 2 {
			mu.Lock()
			for received < sent && c.Context().Err() == nil {
				arrived.Wait()
			}
			if fresh {
				published++
			}
			due := published
			mu.Unlock()
			for sent < due {
				sent++
				c.Play(numbered(sent))
			}
			c.Play(Comment("heartbeat"))
		}
	})
	srv := start(t, &Server{Loopback: true, Rest: []Step{connection, Stall}})

	transport := &http.Transport{DialContext: startNginx(t, srv.URL, 100*time.Millisecond)}
	defer transport.CloseIdleConnections()
	fake := clock.NewFake(time.Time{})
	var w watcher
	client := eventsource.Client{
		HTTPClient: &http.Client{Transport: transport}, Policy: strict, Clock: fake, Trace: traceOf(w.advancing(fake)),
	}
	var data []string
	for ev, err := range client.Stream(request(t.Context(), t, "http://feed.test/")).Events() {
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, ev.Data)
		mu.Lock()
		received, err = strconv.Atoi(ev.Data)
		mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		arrived.Broadcast()
	}
	if diff := cmp.Diff(upTo(2*cuts), data); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	last := len(w.ends) - 1
	if last < cuts {
		t.Fatalf("%d attempts, want %d and the last", last+1, cuts)
	}
	for _, a := range w.ends[:last] {
		if a.Kind != policy.Dropped {
			t.Errorf("attempt %d ended %v with %v, want to be cut off", a.Number, a.Kind, a.Err)
		}
	}
	for i, wait := range w.waits {
		if wait != 3*time.Second {
			t.Errorf("wait %d is %v: it has grown", i+1, wait)
		}
	}
	comments := 0
	for _, line := range w.log {
		if strings.HasPrefix(line, "comment ") {
			comments++
		}
	}
	if comments < 2*cuts {
		t.Errorf("%d comments, want %d at least", comments, 2*cuts)
	}
}

// startNginx starts an nginx in front of a server and returns the way to it.
func startNginx(t *testing.T, upstream string, idle time.Duration) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	binary, err := exec.LookPath("nginx")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/nginx") // where Debian puts it, not in everybody's PATH
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("nginx is not installed, and CI must have it")
		}
		t.Skip("nginx is not installed")
	}
	dir := t.TempDir()
	socket, config := filepath.Join(dir, "nginx.sock"), filepath.Join(dir, "nginx.conf")
	var text strings.Builder
	err = template.Must(template.ParseFiles("testdata/nginx.conf.tmpl")).Execute(&text, map[string]string{
		"Dir": dir, "Socket": socket, "Upstream": upstream, "Idle": strconv.FormatInt(idle.Milliseconds(), 10) + "ms",
	})
	if err == nil {
		err = os.WriteFile(config, []byte(text.String()), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(binary, "-p", dir, "-e", "stderr", "-c", config)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	// It says which event method it uses once it listens.
	var said []string
	ready := false
	for !ready && lines.Scan() {
		said = append(said, lines.Text())
		ready = strings.Contains(lines.Text(), "event method")
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines.Scan() {
		}
	})
	t.Cleanup(func() {
		cmd.Process.Kill()
		reading.Wait()
		cmd.Wait()
	})
	if !ready {
		t.Fatalf("nginx did not start:\n%s", strings.Join(said, "\n"))
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
}
