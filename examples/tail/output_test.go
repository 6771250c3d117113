package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

var errRefused = errors.New("eventsource: refused")

func TestLine(t *testing.T) {
	now := time.Date(2026, 5, 17, 9, 8, 7, 6_543_210, time.UTC)
	tests := []struct {
		name, label, text, want string
		mark                    rune
	}{
		{"an event", "message", "hello", "09:08:07.006   message    hello\n", eventMark},
		{"the client", "connected", "attempt 1", "09:08:07.006 * connected  attempt 1\n", clientMark},
		{"two lines", "message", "a\n b", "09:08:07.006   message    a\n                           b\n", eventMark},
		{"no data", "ping", "", "09:08:07.006   ping\n", eventMark},
		{"a long type", "temperature", "3", "09:08:07.006   temperature  3\n", eventMark},
		{"a terminal's commands", "m\x1b", "\x1b[2J\x07\u009b\tx", "09:08:07.006   m\\u001b    \\u001b[2J\\u0007\\u009b\tx\n", eventMark},
		{"text turned round", "message", "a\u202eb", "09:08:07.006   message    a\\u202eb\n", eventMark},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, line(now, tt.mark, tt.label, tt.text)); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrintJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := printer{w: &out, json: true}
		for _, ev := range []eventsource.Event{
			{Type: "message", Data: "a\n<b> \"c\"", LastEventID: "7"},
			{Type: "ping"},
		} {
			if err := p.print(ev); err != nil {
				t.Fatal(err)
			}
		}
		now, err := json.Marshal(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"type":"message","data":"a\n<b> \"c\"","id":"7","time":%s}`+"\n"+
			`{"type":"ping","data":"","id":"","time":%s}`+"\n", now, now)
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestJournalTexts(t *testing.T) {
	start := time.Unix(1_000, 0)
	tests := []struct{ name, got, want string }{
		{"connected", connectedText(1, ""), "attempt 1"},
		{"connected with an ID", connectedText(2, "x 7"), "attempt 2, resuming after event ID x 7"},
		{
			"closed",
			endText(policy.Attempt{Number: 3, Kind: policy.Ended, Events: 1, Start: start, Open: start.Add(time.Second), End: start.Add(2500 * time.Millisecond)}),
			"attempt 3 after 1 event in 1.5s",
		},
		{
			"dropped",
			endText(policy.Attempt{Number: 3, Kind: policy.Dropped, Events: 12, Start: start, Open: start, End: start.Add(1_234_567 * time.Nanosecond), Err: errors.New("read: reset\nby peer")}),
			"attempt 3 after 12 events in 1ms: read: reset; by peer",
		},
		{"failed", endText(policy.Attempt{Number: 4, Kind: policy.Failed, Start: start, End: start, Err: errRefused}), "attempt 4: refused"},
		{"own wait", waitText(eventsource.WaitInfo{Number: 2, Decided: 1_234_567_890, Waited: 1_234_567_890}), "1.235s before attempt 2: the client's choice"},
		{"asked wait", waitText(eventsource.WaitInfo{Number: 2, Asked: 3e9, Decided: 1e9, Waited: 3e9}), "3s before attempt 2: as the server asked"},
		{"longer wait", waitText(eventsource.WaitInfo{Number: 9, Asked: 3e9, Decided: 4e9, Waited: 4e9}), "4s before attempt 9: the client's choice, the server asked for 3s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

// Each way for an attempt to end has a label, and the label fits its column.
func TestEndLabels(t *testing.T) {
	for k := policy.Ended; k <= policy.Restarted; k++ {
		if l := endLabels[k]; l == "" || len(l) > labelWidth {
			t.Errorf("the label of %v is %q", k, l)
		}
	}
	if next := policy.Restarted + 1; next.String() != fmt.Sprintf("Kind(%d)", next) {
		t.Errorf("%v is a kind that this test does not know", next)
	}
}
