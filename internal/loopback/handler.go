package loopback

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprise-sse/reprise/internal/workloads"
)

// The paths that a [Server] answers, each with an event stream.
const (
	// Idle sends one event, "x", and then nothing.
	Idle = "/idle"

	// IdleAfterLarge sends an event of 64 KiB before the event "x".
	IdleAfterLarge = "/idle-after-large"

	// Busy sends [BusyEvent] over and over, as fast as it is read; with ?events=N it
	// ends after N events.
	Busy = "/busy"

	// Short sends one event and ends. Its data is the time, in nanoseconds, from the
	// end of the previous response to the arrival of this request; 0 if there was no
	// previous response. Use it from one client at a time.
	Short = "/short"
)

// BusyEvent is the event that [Busy] repeats, a token of a language model. BusyData is
// its data.
var BusyEvent, BusyData = token()

func token() (event, data string) {
	w := workloads.Tokens("\n")
	event = string(w.Lap[:len(w.Lap)/w.Events]) // they all have the same size
	return event, strings.TrimSpace(strings.TrimPrefix(event, "data: "))
}

// burst is how many events are written at once.
const burst = 64

// idleEvent comes last on both idle paths.
const idleEvent = "id: 1\ndata: x\n\n"

const largeSize = 64 << 10

func newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Idle, func(w http.ResponseWriter, r *http.Request) { idle(w, r, idleEvent) })
	large := "data: " + strings.Repeat("l", largeSize) + "\n\n" + idleEvent
	mux.HandleFunc(IdleAfterLarge, func(w http.ResponseWriter, r *http.Request) { idle(w, r, large) })
	block := strings.Repeat(BusyEvent, burst)
	mux.HandleFunc(Busy, func(w http.ResponseWriter, r *http.Request) { busy(w, r, block) })
	mux.Handle(Short, new(short))
	return mux
}

func begin(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

func idle(w http.ResponseWriter, r *http.Request, events string) {
	begin(w)
	io.WriteString(w, events)
	http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func busy(w http.ResponseWriter, r *http.Request, block string) {
	left := math.MaxInt
	if events := r.FormValue("events"); events != "" {
		n, err := strconv.Atoi(events)
		if err != nil || n < 0 {
			http.Error(w, "events is no number of events", http.StatusBadRequest)
			return
		}
		left = n
	}
	begin(w)
	for left > 0 {
		n := min(left, burst)
		if _, err := io.WriteString(w, block[:n*len(BusyEvent)]); err != nil {
			return
		}
		left -= n
	}
}

// A short serves [Short].
type short struct {
	mu    sync.Mutex
	ended time.Time // of the previous response
}

func (s *short) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	arrived := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := time.Duration(0)
	if !s.ended.IsZero() {
		gap = arrived.Sub(s.ended)
	}
	begin(w)
	fmt.Fprintf(w, "retry: 0\ndata: %d\n\n", gap.Nanoseconds())
	s.ended = time.Now()
}
