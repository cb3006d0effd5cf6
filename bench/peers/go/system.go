package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"
)

// result is what a phase found out; it becomes a line of JSON.
type result map[string]any

// far is a due time that comes after the end of the benchmark.
const far = time.Hour

// system is a product under test. Its address is an option of the driver.
type system interface {
	// sender connects one client. It is used by one goroutine.
	sender() (sender, error)
	// receive passes every message that arrives on so many connections to the inbox, acknowledges it, and says so. It returns when
	// ctx ends.
	receive(ctx context.Context, consumers int, in *inbox) error
}

// sender is one client that sends.
type sender interface {
	// send returns when all bodies are accepted, each to be received at due.
	send(due time.Time, bodies [][]byte) error
}

// newBody begins with the due time in ms and the number of the message; receivers read both.
func newBody(due time.Time, number, size int) []byte {
	body := fmt.Appendf(make([]byte, 0, size), "%d %d ", due.UnixMilli(), number)
	return append(body, bytes.Repeat([]byte{'x'}, max(0, size-len(body)))...)
}

// readBody returns the due time and the number that newBody wrote.
func readBody(body []byte) (time.Time, int, error) {
	fields := bytes.SplitN(body, []byte{' '}, 3)
	if len(fields) < 3 {
		return time.Time{}, 0, fmt.Errorf("not a body of this benchmark: %q", body)
	}
	due, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return time.Time{}, 0, err
	}
	number, err := strconv.Atoi(string(fields[1]))
	return time.UnixMilli(due), number, err
}

// cpuSeconds is the processor time that this process has used.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
