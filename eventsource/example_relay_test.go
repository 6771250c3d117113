package eventsource_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/reprise-sse/reprise/eventsource"
)

// relay writes the data of resp's events to w, each of one line. It keeps nothing,
// and makes no string.
func relay(w io.Writer, resp *http.Response) error {
	decoder := eventsource.NewDecoder(resp.Body)
	var out []byte
	for {
		event, err := decoder.NextRaw()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		out = append(out[:0], "data: "...)
		out = append(out, event.Data...)
		out = append(out, "\n\n"...)
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
}

// A gateway that passes data on without a copy that outlives the event.
func ExampleDecoder_NextRaw_relay() {
	resp := &http.Response{Body: io.NopCloser(strings.NewReader(": hello\n\nid: 1\ndata: a\n\ndata: b\n\ndata: cut off"))}
	fmt.Println("error:", relay(os.Stdout, resp))
	// Output:
	// data: a
	//
	// data: b
	//
	// error: eventsource: the stream ended inside an event: unexpected EOF
}
