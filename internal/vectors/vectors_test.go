package vectors_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/vectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryLineLoads(t *testing.T) {
	seen := map[string]bool{}
	count := func(file string, want int, err error, names ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if len(names) != want {
			t.Errorf("%s has %d vectors, want %d", file, len(names), want)
		}
		for _, n := range names {
			if n == "" || seen[file+n] {
				t.Errorf("%s has a vector named %q twice, or without a name", file, n)
			}
			seen[file+n] = true
		}
	}
	names := func(list []vectors.Browser) (names []string) {
		for _, v := range list {
			names = append(names, v.ID)
		}
		return names
	}
	named, err := vectors.BrowserNamed()
	count("browser-named", 390, err, names(named)...)
	generated, err := vectors.BrowserGenerated()
	count("browser-generated", 2000, err, names(generated)...)
	http, err := vectors.BrowserHTTP()
	count("browser-http", 111, err, names(http)...)

	formats, err := vectors.Formats()
	var list []string
	for _, v := range formats {
		list = append(list, v.Name)
	}
	count("wpt", 114, err, list...)
	networks, err := vectors.Networks()
	list = nil
	for _, v := range networks {
		list = append(list, v.Name)
	}
	count("wpt", 100, err, list...)
}

// A key that is not known could change what a vector means.
func TestUnknownWordsAreErrors(t *testing.T) {
	const (
		about  = `"kind":"format","suite":"wpt","required_by":"whatwg"`
		format = `{` + about + `,"splits":"any","chunks":["data"],"reconnect":{"retry_ms":null}}`
		net    = `{` + about + `,"final_state":"closed","server":[{"status":200,"chunks":["x",{"wait_ms":1},"y"],"end":"eof"}],"trace":[{"t":"error","state":"closed"}],"client":{"do":[{"on":"open","do":"close"}]},"construct":"error"}`
		real   = `{"outcome":"closed","chunks":["eA=="],"end":"cut","then":[{"chunks":[],"head":{"body":"none"}}],"agree":["webkit"]}`
	)
	for _, tt := range []struct {
		name   string
		decode func(string) error
		line   string
		spoil  [][2]string
	}{
		{"format", vectors.DecodeFormat, format, [][2]string{
			{`"splits"`, `"split"`},
			{`"any"`, `"none"`},
			{`"wpt"`, `"wpt2"`},
			{`"whatwg"`, `"w3c"`},
			{`null`, `"never"`},
			{`"retry_ms":null`, `"retry_ms":null,"retry":1`},
			{`"data"`, `{"repeat":"x","time":2}`},
			{`"data"`, `{"repeat":"x","times":0}`},
			{`"data"`, `[{"repeat":"x","times":0}]`},
			{`"chunks"`, `"encoding":"base65","chunks"`},
			{`"chunks":["data"]`, `"encoding":"base64","chunks":["?"]`},
		}},
		{"network", vectors.DecodeNetwork, net, [][2]string{
			{`"final_state":"closed"`, `"final_state":"open"`},
			{`"eof"`, `"stop"`},
			{`"wait_ms"`, `"wait"`},
			{`,"y"`, ``},
			{`"status":200`, `"status":200,"host":"origin3"`},
			{`"t":"error"`, `"t":"failure"`},
			{`"state":"closed"}]`, `"state":"gone"}]`},
			{`"on":"open"`, `"on":"opened"`},
			{`"do":"close"`, `"do":"leave"`},
			{`"do":[`, `"options":{"headder":{}},"do":[`},
			{`"construct":"error"`, `"construct":"fail"`},
			{`"trace"`, `"accept_also":[[{"t":"x"}]],"trace"`},
		}},
		{"browser", vectors.DecodeBrowser, real, [][2]string{
			{`"closed"`, `"shut"`},
			{`"cut"`, `"abort"`},
			{`"eA=="`, `"?"`},
			{`"none"`, `"all"`},
			{`"webkit"`, `"presto"`},
			{`"head":{`, `"head":{"state":1,`},
		}},
		{"kind", vectors.KindOf, `{"kind":"format"}`, [][2]string{{`"format"`, `"other"`}, {`{`, ``}}},
	} {
		if err := tt.decode(tt.line); err != nil {
			t.Errorf("%s: the line before it is spoilt: %v", tt.name, err)
		}
		for _, s := range tt.spoil {
			spoilt := strings.Replace(tt.line, s[0], s[1], 1)
			if spoilt == tt.line {
				t.Errorf("%s: %s is not in the line", tt.name, s[0])
			}
			if tt.decode(spoilt) == nil {
				t.Errorf("%s: %s in place of %s is no error", tt.name, s[1], s[0])
			}
		}
	}
}

// A name in the table of differences that no vector has would be a difference
// that nobody looks for.
func TestDifferencesNameVectors(t *testing.T) {
	table, err := vectors.Differences()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, load := range []func() ([]vectors.Browser, error){vectors.BrowserNamed, vectors.BrowserGenerated, vectors.BrowserHTTP} {
		list, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			if known[v.ID] {
				t.Errorf("two vectors are called %q", v.ID)
			}
			known[v.ID] = true
		}
	}
	formats, err := vectors.Formats()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range formats {
		known[v.Name] = true
	}
	networks, err := vectors.Networks()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range networks {
		known[v.Name] = true
	}
	for name := range table {
		if !known[name] {
			t.Errorf("the table of differences names %q, which is no vector", name)
		}
	}
}

func TestDifferencesAreStrict(t *testing.T) {
	for text, ok := range map[string]bool{
		"# note\n\n= a: why\nx\ny\n= b: why\nz\n": true,
		"x\n":                          false,
		"= a: why\n":                   false,
		"= a\nx\n":                     false,
		"= a: why\nx\nx\n":             false,
		"= a: why\nx\n= a: why\ny\n":   false,
		"= a: why\nx\n= b: other\nx\n": false,
	} {
		if err := vectors.Parse(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
