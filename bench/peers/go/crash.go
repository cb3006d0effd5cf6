package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// crash sends while the server is killed, and after its restart counts what was accepted and does not come.
// It writes "kill" and reads when that is done, writes "counted" and reads when the server runs again.
func crash(s system, o options) (result, error) {
	clients, err := connect(s, o.posters)
	if err != nil {
		return nil, err
	}
	load := &load{accepted: make(map[int]bool), enough: make(chan struct{}), wanted: o.count}
	for _, client := range clients {
		go load.send(client, o.body)
	}
	select {
	case <-load.enough:
	case <-time.After(5 * time.Second):
	}
	if err := json.NewEncoder(os.Stdout).Encode(result{"event": "kill"}); err != nil {
		return nil, err
	}
	orders := bufio.NewScanner(os.Stdin)
	if err := expect(orders, "killed"); err != nil {
		return nil, err
	}
	// What is answered lies in the buffers of the connections.
	time.Sleep(200 * time.Millisecond)
	accepted := load.end()
	if err := json.NewEncoder(os.Stdout).Encode(result{"event": "counted"}); err != nil {
		return nil, err
	}
	if err := expect(orders, "restarted"); err != nil {
		return nil, err
	}
	// What was taken and never answered comes too, and is not counted.
	in := startInbox(s, o.consumers, len(accepted), accepted)
	in.wait(2 * time.Second)
	found := in.lateness()
	found["accepted"], found["missing"] = len(accepted), in.missing
	return found, in.err()
}

func expect(orders *bufio.Scanner, word string) error {
	if !orders.Scan() || orders.Text() != word {
		return fmt.Errorf("expected %q, read %q", word, orders.Text())
	}
	return nil
}

// load is what the posters of crash share.
type load struct {
	mutex    sync.Mutex
	accepted map[int]bool
	next     int
	wanted   int
	ended    bool
	enough   chan struct{}
}

// send sends one message at a time until the server fails or the load has ended.
func (l *load) send(client sender, size int) {
	for {
		number, ok := l.number()
		if !ok {
			return
		}
		due := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
		if client.send(due, bodies(due, number, 1, size)) != nil || !l.note(number) {
			return
		}
	}
}

func (l *load) number() (int, bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.next++
	return l.next - 1, !l.ended
}

func (l *load) note(number int) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.ended {
		return false
	}
	l.accepted[number] = true
	if len(l.accepted) == l.wanted {
		close(l.enough)
	}
	return true
}

func (l *load) end() map[int]bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.ended = true
	return l.accepted
}
