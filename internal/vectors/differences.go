package vectors

import (
	"fmt"
	"strings"
	"sync"
)

// Differences returns the reasons for which this module differs from vectors, by the
// vectors' names or IDs.
//
// A test that compares with vectors must fail for a difference that is not in the table,
// and for a vector in the table that does not differ.
var Differences = sync.OnceValues(func() (map[string]string, error) {
	b, err := files.ReadFile("testdata/differences.txt")
	if err != nil {
		return nil, err
	}
	return parseDifferences(string(b))
})

func parseDifferences(text string) (map[string]string, error) {
	table := map[string]string{}
	reasons := map[string]int{}
	reason := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "= "):
			name, why, _ := strings.Cut(line[2:], ": ")
			if _, twice := reasons[name]; twice || name == "" || why == "" {
				return nil, fmt.Errorf("vectors: a reason must be given once, and with words: %q", line)
			}
			reason = name
			reasons[reason] = 0
		case reason == "":
			return nil, fmt.Errorf("vectors: %q is listed without a reason", line)
		case table[line] != "":
			return nil, fmt.Errorf("vectors: %q is listed twice", line)
		default:
			table[line] = reason
			reasons[reason]++
		}
	}
	for name, n := range reasons {
		if n == 0 {
			return nil, fmt.Errorf("vectors: nothing differs for the reason %q", name)
		}
	}
	return table, nil
}
