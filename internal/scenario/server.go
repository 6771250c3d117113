package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// respond makes the response to an attempt.
func (r *run) respond(a *Attempt, ctx context.Context) *http.Response {
	answer := a.Answer
	status := answer.Status
	if status == 0 {
		status = http.StatusOK
	}
	h := http.Header{"Set-Cookie": {"session=" + Secret}}
	switch answer.Type {
	case "":
		h.Set("Content-Type", "text/event-stream")
	case "-":
	default:
		h.Set("Content-Type", answer.Type)
	}
	var after time.Duration
	if value := answer.RetryAfter; value != "" {
		if offset, isDate := strings.CutPrefix(value, "+"); isDate {
			// Dates have whole seconds.
			d, _ := time.ParseDuration(offset)
			after = d.Truncate(time.Second)
			date := time.Now().UTC().Truncate(time.Second)
			h.Set("Date", date.Format(http.TimeFormat))
			value = date.Add(after).Format(http.TimeFormat)
		} else if n, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			after = time.Duration(min(n, uint64(forever/time.Second))) * time.Second
			if n > uint64(forever/time.Second) {
				after = forever
			}
		}
		h.Set("Retry-After", value)
	}
	b := &body{
		run: r, attempt: a, ctx: ctx, closed: make(chan struct{}),
		answered: time.Now(), pieces: answer.Body,
	}
	if answer.Deaf {
		b.ctx = context.Background()
	}
	if r.scenario.Chunk < 0 {
		b.cuts = rand.New(rand.NewPCG(uint64(-r.scenario.Chunk), uint64(a.Number)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Adopted {
		r.launch()
	}
	a.HasAnswer, a.Answered, a.RetryAfter = true, r.now(), max(after, 0)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: b, ContentLength: -1,
	}
}

// forever is the longest duration.
const forever = time.Duration(1<<63 - 1)

var errClosed = errors.New("scenario: read on a closed body")

// A body is the body of a response. One goroutine reads it; others may close it.
type body struct {
	run      *run
	attempt  *Attempt
	ctx      context.Context
	closed   chan struct{}
	once     sync.Once
	answered time.Time
	cuts     *rand.Rand // nil unless the cuts are random
	barren   bool       // the last read brought nothing

	pieces []Piece
	offset int           // within the first of them
	waited time.Duration // from answered until the piece before it
}

var _ io.ReadCloser = (*body)(nil)

func (b *body) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.run.over(b.attempt, nil)
		b.run.mu.Lock()
		b.run.land()
		b.attempt.Closed = true
		b.run.mu.Unlock()
	})
	return nil
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if err != nil {
		b.run.over(b.attempt, err)
	}
	a := b.attempt
	b.run.mu.Lock()
	defer b.run.mu.Unlock()
	a.LargestRead = max(a.LargestRead, len(p))
	if n > 0 {
		a.Delivered = append(a.Delivered, p[:n]...)
		a.Reads = append(a.Reads, Read{b.run.now(), len(a.Delivered)})
	}
	return n, err
}

func (b *body) read(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, errClosed
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	default:
	}
	if len(p) == 0 {
		return 0, nil
	}
	switch chunk := b.run.scenario.Chunk; {
	case b.cuts != nil:
		size := b.cuts.IntN(6)
		if size == 0 && b.barren {
			size = 1
		}
		b.barren = size == 0
		if size == 0 {
			return 0, nil
		}
		p = p[:min(size, len(p))]
	case chunk > 0:
		p = p[:min(chunk, len(p))]
	}
	if !b.await() {
		select {
		case <-b.closed:
			return 0, errClosed
		default:
			return 0, b.ctx.Err()
		}
	}
	if len(b.pieces) == 0 {
		switch b.attempt.Answer.End {
		case Clean:
			return 0, io.EOF
		default:
			return 0, ErrCut
		}
	}
	n := 0
	for n < len(p) && len(b.pieces) > 0 && !b.due().After(time.Now()) {
		n += b.fill(p[n:])
	}
	return n, nil
}

// due returns when the first piece comes.
func (b *body) due() time.Time { return b.answered.Add(b.waited + b.pieces[0].Wait) }

// await waits until there is something to read or the body ends. It reports false if the
// client leaves first.
func (b *body) await() bool {
	for {
		for len(b.pieces) > 0 && b.left() == 0 && !b.due().After(time.Now()) {
			b.next()
		}
		switch {
		case len(b.pieces) > 0 && !b.due().After(time.Now()):
			return true
		case len(b.pieces) > 0:
			timer := time.NewTimer(time.Until(b.due()))
			select {
			case <-timer.C:
			case <-b.closed:
				timer.Stop()
				return false
			case <-b.ctx.Done():
				timer.Stop()
				return false
			}
		case b.attempt.Answer.End == Hold:
			select {
			case <-b.closed:
			case <-b.ctx.Done():
			}
			return false
		default:
			return true
		}
	}
}

// left returns how many bytes of the first piece are left.
func (b *body) left() int {
	p := b.pieces[0]
	return len(p.Text)*max(p.Times, 1) - b.offset
}

func (b *body) next() {
	b.waited += b.pieces[0].Wait
	b.pieces, b.offset = b.pieces[1:], 0
}

// fill copies from the first piece.
func (b *body) fill(p []byte) (n int) {
	text := b.pieces[0].Text
	for n < len(p) && b.left() > 0 {
		m := copy(p[n:], text[b.offset%len(text):])
		n += m
		b.offset += m
	}
	if b.left() == 0 {
		b.next()
	}
	return n
}
