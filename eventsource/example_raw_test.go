package eventsource_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/reprise-sse/reprise/eventsource"
)

// JSON events from any reader. NextRaw makes no copy of the data, which is gone at
// the next call; what json.Unmarshal makes of it is not.
func ExampleDecoder_NextRaw() {
	input := strings.NewReader(`
event: price
data: {"symbol":"XYZ","price":12.5}

: a comment, which no event comes of

event: price
data: {"symbol":"XYZ",
data:  "price":12.75}

event: closed
data

`)

	decoder := eventsource.NewDecoder(input)
	for {
		event, err := decoder.NextRaw()
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Println(err) // the input broke off, or an event was too large
			return
		}
		if string(event.Type) != "price" { // no copy here either
			continue
		}
		var quote struct {
			Symbol string
			Price  float64
		}
		if err := json.Unmarshal(event.Data, &quote); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(quote.Symbol, quote.Price)
	}
	// Output:
	// XYZ 12.5
	// XYZ 12.75
}
