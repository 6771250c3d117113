package loopback_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/loopback"
)

func TestMain(m *testing.M) {
	loopback.Main()
	goleak.VerifyTestMain(m)
}

func start(t *testing.T) *loopback.Server {
	t.Helper()
	server, err := loopback.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error("the server's process:", err)
		}
	})
	return server
}

func newClient(t *testing.T) *http.Client {
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestBusyIsExact(t *testing.T) {
	server, client := start(t), newClient(t)
	for _, events := range []int{0, 1, 63, 64, 65, 1000} {
		url := server.URL + loopback.Busy + "?events=" + strconv.Itoa(events)
		size, err := loopback.ReadBare(t.Context(), client, url)
		if want := events * len(loopback.BusyEvent); err != nil || size != want {
			t.Errorf("%d events: read %d bytes, %v; want %d", events, size, err, want)
		}
	}
	if want := "data: " + loopback.BusyData + "\n\n"; loopback.BusyEvent != want || len(loopback.BusyData) != 190 {
		t.Errorf("the event is %q with %d bytes of data, want 190", loopback.BusyEvent, len(loopback.BusyData))
	}
}

func TestBusyRefusesWhatIsNoNumber(t *testing.T) {
	server, client := start(t), newClient(t)
	for _, events := range []string{"-1", "x"} {
		resp, err := client.Get(server.URL + loopback.Busy + "?events=" + events)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("events=%s: status %d, want 400", events, resp.StatusCode)
		}
	}
}

// What the idle paths send is all that they send until the client leaves: reading
// on ends with the context and nothing else.
func TestIdle(t *testing.T) {
	server, client := start(t), newClient(t)
	for path, size := range map[string]int{loopback.Idle: 0, loopback.IdleAfterLarge: 64 << 10} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		want := "id: 1\ndata: x\n\n"
		if size > 0 {
			want = "data: " + strings.Repeat("l", size) + "\n\n" + want
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Errorf("%s: %.80q, %v", path, got, err)
		}
		cancel()
		if n, err := resp.Body.Read(got); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: read %d bytes more, %v; want none until the context is done", path, n, err)
		}
		resp.Body.Close()
	}
}

func TestShortTellsTheGap(t *testing.T) {
	server, client := start(t), newClient(t)
	for i := range 3 {
		data, err := loopback.ReadShort(t.Context(), client, server.URL+loopback.Short)
		if err != nil {
			t.Fatal(err)
		}
		if gap, err := strconv.Atoi(data); err != nil || (gap == 0) != (i == 0) {
			t.Errorf("response %d: the gap is %q, want 0 for the first one only", i, data)
		}
	}
}

func TestMeasureIdle(t *testing.T) {
	const streams, ballast = 50, 100 << 10
	server := start(t)
	url := server.URL + loopback.Idle
	if _, err := loopback.MeasureIdle(streams, url, loopback.OpenBare); err != nil {
		t.Fatal(err)
	}
	bare, err := loopback.MeasureIdle(streams, url, loopback.OpenBare)
	if err != nil {
		t.Fatal(err)
	}
	heavy, err := loopback.MeasureIdle(streams, url, func(ctx context.Context, client *http.Client, url string, opened func()) error {
		held := make([]byte, ballast)
		done := make(chan struct{})
		go func() { // a goroutine of its own
			<-ctx.Done()
			clear(held)
			close(done)
		}()
		err := loopback.OpenBare(ctx, client, url, opened)
		<-done
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	above := heavy.Sub(bare).Each(streams)
	if above.Heap < ballast || above.Heap > ballast+8<<10 {
		t.Errorf("%.0f bytes of heap above bare, want the ballast of %d", above.Heap, ballast)
	}
	if above.Goroutines != 1 {
		t.Errorf("%v goroutines above bare, want 1", above.Goroutines)
	}
	if n := bare.Each(streams).Goroutines; n < 3 {
		t.Errorf("a bare stream has %v goroutines, want net/http's two and its own", n)
	}
}

func TestMeasureIdleReportsFailure(t *testing.T) {
	server := start(t)
	bad := errors.New("bad stream")
	_, err := loopback.MeasureIdle(3, server.URL+loopback.Idle,
		func(context.Context, *http.Client, string, func()) error { return bad })
	if err != bad {
		t.Errorf("the error is %v, want %v", err, bad)
	}
}

func TestCPUTimeCountsThisProcess(t *testing.T) {
	before := loopback.CPUTime()
	n := 0
	for loopback.CPUTime() == before {
		n++ // hangs if the clock stands still
	}
	if after := loopback.CPUTime(); after <= before {
		t.Errorf("CPU time went from %v to %v", before, after)
	}
}

func TestCost(t *testing.T) {
	got := loopback.Cost{Heap: 30, Stack: 20, Goroutines: 10}.Sub(loopback.Cost{Heap: 10, Stack: 10, Goroutines: 5}).Each(5)
	if diff := cmp.Diff(loopback.Cost{Heap: 4, Stack: 2, Goroutines: 1}, got); diff != "" {
		t.Error(diff)
	}
}
