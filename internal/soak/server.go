package soak

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// A server publishes numbered events to all its clients, and sends each what it has
// missed. It can be taken down and brought up again.
type server struct {
	url, address string

	http    *http.Server // nil while down
	serving sync.WaitGroup

	mu      sync.Mutex
	latest  int           // number of the newest event; its ID and data
	changed chan struct{} // closed, and replaced, when latest changes
}

func startServer() (*server, error) {
	s := &server{address: "127.0.0.1:0", changed: make(chan struct{})}
	return s, s.up()
}

// up starts listening, on the same port as before.
func (s *server) up() error {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	s.url = "http://" + s.address
	s.http = &http.Server{Handler: http.HandlerFunc(s.handle)}
	s.serving.Go(func() {
		_ = s.http.Serve(listener) // down causes the error
	})
	return nil
}

// down closes the port and all connections. Their handlers see it a little later.
func (s *server) down() {
	s.http.Close()
	s.serving.Wait()
	s.http = nil
}

func (s *server) close() {
	if s.http != nil {
		s.down()
	}
}

func (s *server) publish(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = n
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) state() (latest int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest, s.changed
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	sent, err := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	latest, changed := s.state()
	if err != nil {
		sent = latest // a new client gets what comes from now on
	}
	for {
		for ; sent < latest; sent++ {
			n := strconv.Itoa(sent + 1)
			io.WriteString(w, ": heartbeat\n\nid: "+n+"\ndata: "+n+"\n\n")
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		latest, changed = s.state()
	}
}
