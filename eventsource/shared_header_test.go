package eventsource_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
)

// Requests share the values of the headers that all have. What Prepare is given is
// its own: an edit in place must not reach the requests of others.
func TestPrepareEditsItsOwnHeader(t *testing.T) {
	var sent http.Header
	client := eventsource.Client{HTTPClient: &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		sent = req.Header.Clone()
		return status(http.StatusNoContent)(req)
	})}}
	stream := func() {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range client.Stream(req).Events() {
			t.Fatal(err)
		}
	}
	stream()
	want := sent

	client.Prepare = func(req *http.Request) error {
		for _, values := range req.Header {
			for i := range values {
				values[i] = "edited"
			}
		}
		return nil
	}
	stream()
	if got := sent.Get("Accept"); got != "edited" {
		t.Errorf("Prepare's edit is not in the request: Accept is %q", got)
	}

	client.Prepare = nil
	stream()
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("the header after an edit of another stream's (-want +got):\n%s", diff)
	}
}
