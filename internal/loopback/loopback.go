// Package loopback serves event streams from a process of its own, over loopback HTTP,
// and measures what a client costs in the calling process.
//
// It is for benchmarks. A server in the same process would use the CPU time and the
// memory that are to be measured.
package loopback

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
)

// roleVariable marks a process that Start has started.
const roleVariable = "REPRISE_LOOPBACK_SERVER"

// Main does nothing, unless [Start] has started this process. Then it serves until
// standard input ends, and does not return. Call it before anything else, at the start
// of main or in an init function.
func Main() {
	if os.Getenv(roleVariable) == "" {
		return
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "loopback:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve listens, writes its URL to out as a line, and returns when in ends.
func serve(in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newHandler()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Fprintf(out, "http://%v\n", listener.Addr()); err != nil {
		return err
	}
	io.Copy(io.Discard, in) // until the parent has closed it or is gone
	server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A Server is a process that serves event streams.
type Server struct {
	URL string // without a path

	process *exec.Cmd
	input   io.Closer
}

// Start starts the running program a second time, as a server. The program must call
// [Main].
func Start() (*Server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), roleVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{process: cmd, input: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("the server process did not tell its URL: %w", err)
	}
	s.URL = line[:len(line)-1]
	return s, nil
}

// Close ends the process and waits for it.
func (s *Server) Close() error {
	s.input.Close()
	return s.process.Wait()
}
