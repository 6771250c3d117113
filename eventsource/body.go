package eventsource

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// A replay keeps the body of a stream's request. It lends the body to one attempt
// after another and knows whether the request may be sent again at all.
//
//	      lend            handOver
//	kept ------> lent ---------------> gone
//	 ^             |                    ^
//	 |  giveBack,  |     giveBack,      |
//	 +-- unread ---+------ read --------+
//
// That is the life of a body which can be read only once. It begins as kept, and
// once it is gone there is no other. If the request has a GetBody, each attempt is
// lent a body of its own, so both ways out of lent lead back to kept. A request
// without a body has nothing to lend and stays in kept.
//
// net/http closes a body that was handed over; replay closes every other one.
type replay struct {
	request *http.Request // nil if none follows the adopted response
	lent    *lentBody     // what the attempt under way was lent; nil unless lent
	gone    bool          // request.Body is closed, or net/http's to close

	// repeatable tells whether a decision to connect again may be followed. A
	// request that has not been sent yet always may be.
	repeatable bool
}

// A lentBody is the body of one attempt as this package set it, which
// distinguishes it from one that Client.Prepare set.
type lentBody struct {
	io.ReadCloser
	read bool
}

func (b *lentBody) Read(p []byte) (int, error) {
	b.read = true
	return b.ReadCloser.Read(p)
}

func newReplay(req *http.Request) replay {
	return replay{request: req, repeatable: req != nil}
}

// hasBody reports whether the stream's request has a body.
func (r *replay) hasBody() bool {
	return r.request.Body != nil && r.request.Body != http.NoBody
}

// lend gives req, the request of the next attempt, its body; none if there is none,
// or if it is gone.
func (r *replay) lend(req *http.Request) error {
	req.Body = nil
	if !r.hasBody() || r.gone {
		return nil
	}
	body := r.request.Body
	if r.request.GetBody != nil {
		var err error
		if body, err = r.request.GetBody(); err != nil {
			own := wrapOwnError(unprefixed(ErrNotReplayable)+": GetBody", err)
			return &wrappedError{own.Error(), errors.Join(ErrNotReplayable, err)}
		}
	}
	r.lent = &lentBody{ReadCloser: body}
	req.Body = r.lent
	return nil
}

// lacksBody reports whether req is without the body that it should have: that is
// gone, and Client.Prepare has not set another.
func (r *replay) lacksBody(req *http.Request) bool { return r.gone && req.Body == nil }

// prepared takes note of an attempt's request once it is complete: whether it may be
// sent again.
func (r *replay) prepared(req *http.Request) {
	r.repeatable = idempotent(req) && (!r.isLent(req.Body) || r.request.GetBody != nil)
}

// isLent reports whether body is the one that the attempt was lent.
func (r *replay) isLent(body io.ReadCloser) bool {
	return r.lent != nil && body == io.ReadCloser(r.lent)
}

// handOver notes that req is about to be given to net/http, which closes its body.
// If Client.Prepare has replaced the body that was lent, that one is still to be
// given back.
func (r *replay) handOver(req *http.Request) {
	if r.isLent(req.Body) {
		r.lent = nil
		r.gone = r.request.GetBody == nil
	}
}

// giveBack ends a loan that did not lead to a request. A body of which
// Client.Prepare has read is of no use to another attempt. It may be called
// whether or not there is a loan.
func (r *replay) giveBack() {
	if r.lent == nil {
		return
	}
	switch {
	case r.request.GetBody != nil:
		r.lent.Close()
	case r.lent.read:
		r.gone = true
		r.lent.Close()
	}
	r.lent = nil
}

// close closes the body that the request came with if net/http has not been given
// it, as net/http does with a request that it cannot send.
func (r *replay) close() {
	if r.request != nil && r.request.Body != nil && !r.gone {
		r.request.Body.Close()
	}
}

// idempotencyKeys are the headers that make net/http, and so this package, treat a
// request of any method as idempotent.
var idempotencyKeys = [...]string{"Idempotency-Key", "X-Idempotency-Key"}

// idempotent reports whether req may be sent again by net/http's rule. It puts an
// empty idempotency key into the form that net/http does not send.
func idempotent(req *http.Request) bool {
	ok := false
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		ok = true
	}
	for _, name := range idempotencyKeys {
		values, present := req.Header[name]
		if !present {
			continue
		}
		ok = true
		if strings.Join(values, "") == "" {
			// net/http takes an empty key for a mark that is not to be sent, but
			// leaves out only an empty slice.
			req.Header[name] = []string{}
		}
	}
	return ok
}
