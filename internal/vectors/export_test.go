package vectors

// For the tests of this package: the decoders of one line, and the table's.
var (
	DecodeBrowser = func(line string) error { return decodeBrowser([]byte(line), new([]Browser)) }
	DecodeFormat  = func(line string) error { _, err := decodeFormat([]byte(line)); return err }
	DecodeNetwork = func(line string) error { _, err := decodeNetwork([]byte(line)); return err }
	Parse         = func(text string) error { _, err := parseDifferences(text); return err }
	KindOf        = func(line string) error { _, err := kindOf([]byte(line)); return err }
)
