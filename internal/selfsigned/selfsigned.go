// Package selfsigned makes a TLS certificate for servers in tests. It is made in memory
// when the process first asks for it, and is useless outside the process.
package selfsigned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// ServerName is the only DNS name that the certificate is valid for. A client that sets
// it in its tls.Config can dial the server under any name.
const ServerName = "server.test"

type material struct {
	certificate tls.Certificate
	roots       *x509.CertPool
}

// Server returns a new TLS configuration for a server that offers the given application
// protocols (RFC 7301), the preferred one first.
func Server(protocols ...string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{made().certificate},
		NextProtos:   protocols,
	}
}

// Client returns a new TLS configuration that trusts only Server's certificate,
// whatever host name is dialled.
func Client() *tls.Config {
	return &tls.Config{RootCAs: made().roots, ServerName: ServerName}
}

var made = sync.OnceValue(func() material {
	m, err := generate()
	if err != nil {
		panic(fmt.Sprintf("internal error: making a certificate: %v", err))
	}
	return m
})

func generate() (material, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return material{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: ServerName},
		DNSNames:     []string{ServerName, "localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		// A testing/synctest bubble begins in the year 2000, and a fake clock whenever
		// its test likes.
		NotBefore:             time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return material{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return material{}, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return material{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		roots:       roots,
	}, nil
}
