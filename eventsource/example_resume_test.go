package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// consume handles the events of url from where it was the last time, which it keeps
// in a file. The ID is stored after the event has been handled, so a crash in
// between brings that event again, and none is lost. It is an event's own ID, not
// that of Stream.LastEventID, which may be ahead of the loop.
func consume(ctx context.Context, client *eventsource.Client, url, file string, handle func(eventsource.Event) error) error {
	stored, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if len(stored) > 0 {
		req.Header.Set("Last-Event-ID", string(stored))
	}
	for event, err := range client.Stream(req).Events() {
		if err != nil {
			return err
		}
		if err := handle(event); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(event.LastEventID), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// A program that goes on where it crashed.
func Example_resume() {
	server := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{
		{eventsourcetest.Event{ID: "1", Data: "a"}, eventsourcetest.Event{ID: "2", Data: "b"}, eventsourcetest.Stall},
		{eventsourcetest.Event{ID: "2", Data: "b"}, eventsourcetest.Event{ID: "3", Data: "c"}, eventsourcetest.Stall},
	}}
	server.Start()
	defer server.Close()
	dir, err := os.MkdirTemp("", "resume")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	client := &eventsource.Client{HTTPClient: server.Client()}
	for _, last := range []string{"b", "c"} {
		err := consume(context.Background(), client, server.URL, filepath.Join(dir, "last-event-id"), func(event eventsource.Event) error {
			fmt.Println(event.Data)
			if event.Data == last {
				return errors.New("crash")
			}
			return nil
		})
		fmt.Println(err)
	}
	for _, r := range server.Requests() {
		fmt.Printf("request %d with Last-Event-ID %q\n", r.Number, r.LastEventID)
	}
	// Output:
	// a
	// b
	// crash
	// b
	// c
	// crash
	// request 1 with Last-Event-ID ""
	// request 2 with Last-Event-ID "1"
}
