package eventsource

import (
	"bufio"
	"compress/gzip"
	"io"
)

// A gunzip decodes a body that the caller asked to have compressed. It does not read
// the gzip header until it is first read from, so that a stream opens, and its idle
// timeout runs, before the first byte has come. It returns what the server has
// flushed without waiting for more, not even for the next gzip member: some servers
// make one member for each event.
type gunzip struct {
	source  io.Reader
	input   *bufio.Reader // from source
	member  *gzip.Reader  // from input
	started bool          // the member's header has been read, but not its end
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		if !g.started {
			if err := g.begin(); err != nil {
				return 0, err
			}
		}
		n, err = g.member.Read(p)
		if err == io.EOF {
			g.started, err = false, nil
		}
	}
	return n, err
}

// begin reads the header of the next member. It returns io.EOF if there is none.
func (g *gunzip) begin() (err error) {
	if g.member == nil {
		g.input, g.member = bufio.NewReader(g.source), new(gzip.Reader)
	}
	if err := g.member.Reset(g.input); err != nil {
		return err
	}
	g.member.Multistream(false) // otherwise Read would read the next header before it returns
	g.started = true
	return nil
}
