package h2test

import "errors"

// huffmanSymbols is the code of RFC 7541, appendix B, by the length of the codes in
// bits. The code is canonical: codes count upwards, in the order of their lengths
// and then of the bytes they stand for, so the lengths say it all. The end-of-string
// symbol, which must not occur, is the one code that is left over.
var huffmanSymbols = [31]string{
	5:  "012aceiost",
	6:  " %-./3456789=A_bdfghlmnpru",
	7:  ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
	8:  "&*,;XZ",
	10: "!\"()?",
	11: "'+|",
	12: "#>",
	13: "\x00$@[]~",
	14: "^}",
	15: "<`{",
	19: "\\\xc3\xd0",
	20: "\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
	21: "\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
	22: "\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
	23: "\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef",
	24: "\x09\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
	25: "\xc7\xcf\xea\xeb",
	26: "\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
	27: "\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
	28: "\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
	30: "\x0a\x0d\x16",
}

var errHuffman = errors.New("h2test: malformed Huffman code")

func decodeHuffman(p []byte) (string, error) {
	var out []byte
	// Of the code being read: its bits so far and their number; and of the codes
	// of that length, the first one.
	code, length, first := 0, 0, 0
	padding := true // the bits so far are all ones
	for _, b := range p {
		for bit := 7; bit >= 0; bit-- {
			one := int(b>>bit) & 1
			code, first = code<<1|one, first<<1
			length++
			padding = padding && one == 1
			if length == len(huffmanSymbols) {
				return "", errHuffman
			}
			symbols := huffmanSymbols[length]
			if i := code - first; i < len(symbols) {
				out = append(out, symbols[i])
				code, length, first, padding = 0, 0, 0, true
			} else {
				first += len(symbols)
			}
		}
	}
	// RFC 7541 §5.2: less than a byte of padding, from the start of the code that
	// is all ones.
	if length > 7 || !padding {
		return "", errHuffman
	}
	return string(out), nil
}
