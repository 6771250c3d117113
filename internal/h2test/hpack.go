package h2test

import (
	"errors"
	"fmt"
)

// A Field is a field of a header block. The names of HTTP/2 are in lower case, and
// those of pseudo-header fields begin with a colon.
type Field struct{ Name, Value string }

// encode writes fields in the simplest of the representations, literals that are
// not indexed (RFC 7541 §6.2.2), without Huffman coding.
func encode(fields []Field) []byte {
	var p []byte
	for _, f := range fields {
		p = append(p, 0)
		for _, s := range [...]string{f.Name, f.Value} {
			p = appendInteger(p, 7, len(s))
			p = append(p, s...)
		}
	}
	return p
}

// appendInteger appends an integer whose first byte has n bits for it (RFC 7541
// §5.1).
func appendInteger(p []byte, n uint, i int) []byte {
	limit := 1<<n - 1
	if i < limit {
		return append(p, byte(i))
	}
	p = append(p, byte(limit))
	for i -= limit; i >= 0x80; i >>= 7 {
		p = append(p, byte(i)|0x80)
	}
	return append(p, byte(i))
}

// tableSize is the size of the dynamic table that a client may use, as long as the
// server's settings say nothing else (RFC 9113 §6.5.2).
const tableSize = 4096

// A decoder decodes the header blocks of one direction of a connection, which must
// all be given to it in order. Make one with newDecoder.
type decoder struct {
	dynamic []Field // the newest first
	size    int     // of dynamic, by RFC 7541 §4.1
	limit   int     // of size, at most tableSize
}

func newDecoder() *decoder { return &decoder{limit: tableSize} }

var errHPACK = errors.New("h2test: malformed header block")

func (d *decoder) decode(p []byte) ([]Field, error) {
	var fields []Field
	for len(p) > 0 {
		b := p[0]
		switch {
		case b&0x80 != 0: // RFC 7541 §6.1, indexed
			i, rest, err := integer(p, 7)
			if err != nil {
				return nil, err
			}
			f, err := d.field(i)
			if err != nil {
				return nil, err
			}
			fields, p = append(fields, f), rest
		case b&0xe0 == 0x20: // §6.3, dynamic table size update
			limit, rest, err := integer(p, 5)
			if err != nil {
				return nil, err
			}
			if limit > tableSize || len(fields) > 0 {
				return nil, errHPACK
			}
			d.limit, p = limit, rest
			d.evict()
		default: // §6.2, literal
			indexing, prefix := b&0x40 != 0, uint(4)
			if indexing {
				prefix = 6
			}
			i, rest, err := integer(p, prefix)
			if err != nil {
				return nil, err
			}
			var f Field
			if i > 0 {
				f, err = d.field(i)
			} else {
				f.Name, rest, err = text(rest)
			}
			if err != nil {
				return nil, err
			}
			if f.Value, rest, err = text(rest); err != nil {
				return nil, err
			}
			if indexing {
				d.dynamic = append([]Field{f}, d.dynamic...)
				d.size += sizeOf(f)
				d.evict()
			}
			fields, p = append(fields, f), rest
		}
	}
	return fields, nil
}

// field returns the field with an index (RFC 7541 §2.3.3).
func (d *decoder) field(i int) (Field, error) {
	switch {
	case i < 1 || i > len(staticTable)+len(d.dynamic):
		return Field{}, fmt.Errorf("%w: index %d", errHPACK, i)
	case i <= len(staticTable):
		return staticTable[i-1], nil
	}
	return d.dynamic[i-1-len(staticTable)], nil
}

// evict drops the oldest entries that are too much (RFC 7541 §4.3, §4.4).
func (d *decoder) evict() {
	for d.size > d.limit {
		last := len(d.dynamic) - 1
		d.size -= sizeOf(d.dynamic[last])
		d.dynamic = d.dynamic[:last]
	}
}

func sizeOf(f Field) int { return len(f.Name) + len(f.Value) + 32 }

// integer decodes an integer that begins in the n low bits of p[0].
func integer(p []byte, n uint) (i int, rest []byte, err error) {
	if len(p) == 0 {
		return 0, nil, errHPACK
	}
	limit := 1<<n - 1
	i, p = int(p[0])&limit, p[1:]
	if i < limit {
		return i, p, nil
	}
	// Three more bytes are more than any index or length here needs.
	for shift := 0; shift < 21 && len(p) > 0; shift += 7 {
		b := p[0]
		i, p = i+int(b&0x7f)<<shift, p[1:]
		if b&0x80 == 0 {
			return i, p, nil
		}
	}
	return 0, nil, errHPACK
}

// text decodes a string literal (RFC 7541 §5.2).
func text(p []byte) (s string, rest []byte, err error) {
	n, rest, err := integer(p, 7)
	if err != nil {
		return "", nil, err
	}
	if n > len(rest) {
		return "", nil, errHPACK
	}
	if p[0]&0x80 == 0 {
		return string(rest[:n]), rest[n:], nil
	}
	s, err = decodeHuffman(rest[:n])
	return s, rest[n:], err
}

// staticTable is that of RFC 7541, appendix A; its first entry has the index 1.
var staticTable = [...]Field{
	{":authority", ""},
	{":method", "GET"},
	{":method", "POST"},
	{":path", "/"},
	{":path", "/index.html"},
	{":scheme", "http"},
	{":scheme", "https"},
	{":status", "200"},
	{":status", "204"},
	{":status", "206"},
	{":status", "304"},
	{":status", "400"},
	{":status", "404"},
	{":status", "500"},
	{"accept-charset", ""},
	{"accept-encoding", "gzip, deflate"},
	{"accept-language", ""},
	{"accept-ranges", ""},
	{"accept", ""},
	{"access-control-allow-origin", ""},
	{"age", ""},
	{"allow", ""},
	{"authorization", ""},
	{"cache-control", ""},
	{"content-disposition", ""},
	{"content-encoding", ""},
	{"content-language", ""},
	{"content-length", ""},
	{"content-location", ""},
	{"content-range", ""},
	{"content-type", ""},
	{"cookie", ""},
	{"date", ""},
	{"etag", ""},
	{"expect", ""},
	{"expires", ""},
	{"from", ""},
	{"host", ""},
	{"if-match", ""},
	{"if-modified-since", ""},
	{"if-none-match", ""},
	{"if-range", ""},
	{"if-unmodified-since", ""},
	{"last-modified", ""},
	{"link", ""},
	{"location", ""},
	{"max-forwards", ""},
	{"proxy-authenticate", ""},
	{"proxy-authorization", ""},
	{"range", ""},
	{"referer", ""},
	{"refresh", ""},
	{"retry-after", ""},
	{"server", ""},
	{"set-cookie", ""},
	{"strict-transport-security", ""},
	{"transfer-encoding", ""},
	{"user-agent", ""},
	{"vary", ""},
	{"via", ""},
	{"www-authenticate", ""},
}
