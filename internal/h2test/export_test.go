package h2test

import "strings"

// Decode decodes header blocks in order, as the blocks of one connection.
func Decode(blocks ...[]byte) (last []Field, err error) {
	d := newDecoder()
	for _, p := range blocks {
		if last, err = d.decode(p); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// Encode is encode.
var Encode = encode

// ReadContent reads a frame and returns its content.
func ReadContent(wire string) (content []byte, err error) {
	f, err := readFrame(strings.NewReader(wire))
	if err != nil {
		return nil, err
	}
	return f.content()
}
