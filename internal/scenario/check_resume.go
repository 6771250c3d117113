package scenario

import (
	"slices"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/reference"
)

// NothingForgotten checks that every request asks to go on from where the finished blocks
// of all earlier responses have led, and that no event is lost on the way to the loop.
func NothingForgotten(r *Record, c *Complaints) {
	truths := r.Truths()
	id := r.Scenario.Caller.LastEventID
	if r.Scenario.Caller.Adopt == Alone {
		id = "" // there is no request to seed it
	}
	for i, a := range r.Attempts {
		if a.Sent {
			var want []string
			if id != "" {
				want = []string{id}
			}
			if got := a.Header["Last-Event-Id"]; !slices.Equal(got, want) {
				c.Add("attempt %d asks to go on from %q, not from %q", a.Number, got, want)
			}
			if caller := r.Scenario.Caller; caller.Post && caller.Payload != Empty && a.Body != PayloadText {
				c.Add("attempt %d is sent with the body %q", a.Number, a.Body)
			}
		}
		checkDelivered(c, a, truths[i].Decoded.Events)
		before := id
		id = truths[i].LastEventID
		if a.Reported != nil && a.Reported.LastEventID != id {
			c.Add("attempt %d is said to end with the ID %q, not with %q", a.Number, a.Reported.LastEventID, id)
		}
		if _, stopped := a.Decided.Stopped(); a.Asked != nil && !stopped && a.Decided.Forgets() {
			if i < len(r.Attempts)-1 || len(a.Waited) > 0 {
				id = ""
			}
		}
		if i < len(r.Attempts)-1 {
			continue
		}
		possible := []string{id}
		if a.Reported == nil && truths[i].Streamed {
			possible = idsAfter(truths[i].Decoded, a, before)
		}
		if !slices.Contains(possible, r.Resumed) {
			c.Add("the ID to resume from is %q in the end; what the loop was given leads to one of %q", r.Resumed, possible)
		}
	}
}

// checkDelivered checks the events that the loop was given of one attempt.
func checkDelivered(c *Complaints, a *Attempt, decoded []reference.Event) {
	if len(a.Events) > len(decoded) || a.Reported != nil && len(a.Events) < len(decoded) {
		c.Add("attempt %d: the loop was given %d events of %d", a.Number, len(a.Events), len(decoded))
		return
	}
	for n, got := range a.Events {
		want := eventsource.Event{Type: decoded[n].Type, Data: decoded[n].Data, LastEventID: decoded[n].LastEventID}
		if got.Event != want {
			c.Add("attempt %d: event %d is %+v, not %+v", a.Number, n+1, got.Event, want)
		}
		if got.ID != want.LastEventID {
			c.Add("attempt %d: in the body of event %d, %+v, LastEventID is %q", a.Number, n+1, want, got.ID)
		}
	}
}

// idsAfter returns the IDs that a stream can resume from after an attempt that the
// caller has ended: that of the last event that the loop was given, or of a block
// without data between it and the next event, but never that of the next event.
func idsAfter(decoded reference.Result, a *Attempt, before string) []string {
	from, to := 0, len(a.Delivered)
	if n := len(a.Events); n > 0 {
		from = decoded.Events[n-1].End
	}
	if n := len(a.Events); n < len(decoded.Events) {
		to = decoded.Events[n].End - 1
	}
	var ids []string
	for i := from; i <= to; i++ {
		if i == from || i == to || lineEnd(a.Delivered[i-1]) && lineEnd(a.Delivered[max(i-2, 0)]) {
			ids = append(ids, reference.Decode(a.Delivered[:i], before).LastEventID)
		}
	}
	return slices.Compact(ids)
}

func lineEnd(b byte) bool { return b == '\n' || b == '\r' }
