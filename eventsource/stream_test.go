package eventsource_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// TestStreamRidesOutWhatComes is one stream through every kind of trouble: what it
// yields, what it sends, and how long it waits.
func TestStreamRidesOutWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := answers(
			body(errCut, "id: 1\ndata: a\n\ndata: lost"),
			body(nil, "retry: 1500\nid: 2\ndata: b\n\n"),
			status(503, "Retry-After", "7"),
			body(nil, "id: 3\ndata\n\n"), // primed and closed
			refuse(errors.New("dial refused")),
			body(nil, "data: c\n\n"),
			status(204),
		)
		var log []string
		trace := &eventsource.Trace{
			End:  func(a policy.Attempt) { log = append(log, fmt.Sprintf("%d %v %v", a.Number, a.Kind, a.LastEventID)) },
			Wait: func(w eventsource.WaitInfo) { log = append(log, fmt.Sprint(w.Waited)) },
			Done: func(err error) { log = append(log, fmt.Sprint("done ", err)) },
		}
		rules := policy.ResilientRules()
		rules.Jitter = -1
		s := rt.client(eventsource.Client{Policy: rules.New, Trace: trace}).Stream(get(t.Context()))
		data, err := collect(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b", "", "c"}, data); diff != "" {
			t.Error(diff)
		}
		want := []string{
			"1 dropped 1", "3s",
			"2 ended 2", "1.5s",
			"3 rejected 2", "7s",
			"4 ended 3", "3s",
			"5 failed 3", "6s",
			"6 ended 3", "1.5s",
			"7 rejected 3", "done <nil>",
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Error(diff)
		}
		var ids []string
		for _, r := range rt.requests {
			ids = append(ids, strings.Join(r.Header.Values("Last-Event-ID"), "|"))
		}
		if diff := cmp.Diff([]string{"", "1", "2", "2", "3", "3", "3"}, ids); diff != "" {
			t.Error(diff)
		}
	})
}
