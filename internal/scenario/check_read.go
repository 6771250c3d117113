package scenario

import (
	"errors"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/policy"
)

// readAhead is the constant of G10: what a stream may read beyond what it needs.
const readAhead = 64 << 10

// BoundedMemory checks that whatever the server sends, a stream reads no more than its limit
// and a constant before it refuses, and never asks for more at once.
func BoundedMemory(r *Record, c *Complaints) {
	for i, truth := range r.Truths() {
		a := r.Attempts[i]
		if most := MaxEventSize + readAhead; a.LargestRead > most {
			c.Add("attempt %d has room for %d bytes", a.Number, a.LargestRead)
		}
		response := (*eventsource.ResponseError)(nil)
		if truth.Rejected && (len(a.Delivered) > 4<<10 || a.Reported != nil && errors.As(a.Reported.Err, &response) && len(response.Body) > 4<<10) {
			c.Add("attempt %d reads %d bytes of a refusal", a.Number, len(a.Delivered))
		}
		if !truth.TooLarge {
			if a.Reported != nil && a.Reported.Kind == policy.TooLarge {
				c.Add("attempt %d: %v", a.Number, a.Reported.Err)
			}
			continue
		}
		if a.Reported != nil && a.Reported.Kind != policy.TooLarge {
			c.Add("attempt %d is %v with an event that is too large", a.Number, a.Reported.Kind)
		}
		if last := a.Reads[len(a.Reads)-1]; len(a.Reads) > 1 {
			// All that was read before the last read was within the limit.
			before := a.Reads[len(a.Reads)-2].Total
			if _, late := reference.TooLarge(a.Delivered[:before], "", MaxEventSize); late || last.Total-before > readAhead {
				c.Add("attempt %d goes on reading an event that is too large, up to byte %d", a.Number, last.Total)
			}
		}
	}
}
