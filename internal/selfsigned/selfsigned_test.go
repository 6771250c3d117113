package selfsigned_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/internal/selfsigned"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHandshake: the two configurations fit each other, and nobody else trusts
// the certificate.
func TestHandshake(t *testing.T) {
	for _, test := range []struct {
		name    string
		client  *tls.Config
		trusted bool
	}{
		{"own client", selfsigned.Client(), true},
		{"another client", &tls.Config{ServerName: selfsigned.ServerName}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := memnet.Pipe()
			defer a.Close()
			defer b.Close()
			test.client.NextProtos = []string{"x", "h2"}
			client, server := tls.Client(a, test.client), tls.Server(b, selfsigned.Server("h2"))
			done := make(chan error, 1)
			go func() { done <- server.HandshakeContext(t.Context()) }()
			err := client.HandshakeContext(t.Context())
			serverErr := <-done
			if !test.trusted {
				if unknown := (*tls.CertificateVerificationError)(nil); !errors.As(err, &unknown) {
					t.Errorf("handshake: %v, want a refused certificate", err)
				}
				return
			}
			if err != nil || serverErr != nil {
				t.Fatalf("handshake: client %v, server %v", err, serverErr)
			}
			if got := client.ConnectionState().NegotiatedProtocol; got != "h2" {
				t.Errorf("protocol = %q, want h2", got)
			}
		})
	}
}
