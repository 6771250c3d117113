package h2test_test

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/reprise-sse/reprise/internal/h2test"
)

// dialTLS makes a connection to a server without net/http.
func dialTLS(t *testing.T, srv *h2test.Server) (*tls.Conn, error) {
	t.Helper()
	transport := srv.Client().Transport.(*http.Transport)
	raw, err := transport.DialContext(t.Context(), "tcp", "server.test:443")
	if err != nil {
		return nil, err
	}
	config := transport.TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	conn := tls.Client(raw, config)
	return conn, conn.HandshakeContext(t.Context())
}
