package regionbench

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"
)

// echo answers each line that it reads, at once.
func echo(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintln(c, lines.Text())
				}
			}()
		}
	}()
	return ln.Addr().String()
}

func open(t *testing.T, w *way) (net.Conn, *bufio.Scanner) {
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewScanner(c)
}

// A hundred requests that leave one after the other arrive one after the other: the last one takes as long as the first.
func TestAWayDelaysAndDoesNotSerialize(t *testing.T) {
	const delay = 50 * time.Millisecond
	w, err := newWay(echo(t), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c, lines := open(t, w)
	began := time.Now()
	fmt.Fprintln(c, "connected")
	lines.Scan()
	if took := time.Since(began); took < 4*delay {
		t.Errorf("the first answer on a connection came after %v, with a delay of %v each way", took, delay)
	}
	began = time.Now()
	go func() {
		for i := range 100 {
			fmt.Fprintln(c, i)
			time.Sleep(time.Millisecond)
		}
	}()
	for i := range 100 {
		if !lines.Scan() || lines.Text() != fmt.Sprint(i) {
			t.Fatalf("answer %d is %q: %v", i, lines.Text(), lines.Err())
		}
		if i == 0 && time.Since(began) < 2*delay {
			t.Errorf("an answer came after %v, with a delay of %v each way", time.Since(began), delay)
		}
	}
	// One after the other would be 100 times 100 ms.
	if took := time.Since(began); took > 50*delay {
		t.Errorf("100 answers took %v", took)
	}
}

func TestACutWayHoldsWhatIsSentUntilItIsWhole(t *testing.T) {
	w, err := newWay(echo(t), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c, lines := open(t, w)
	fmt.Fprintln(c, "before")
	lines.Scan()
	w.cut()
	fmt.Fprintln(c, "meanwhile")
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d bytes arrived while the way was cut", n)
	}
	c.SetReadDeadline(time.Time{})
	w.heal()
	if lines = bufio.NewScanner(c); !lines.Scan() || lines.Text() != "meanwhile" {
		t.Fatalf("%q arrived when the way was whole: %v", lines.Text(), lines.Err())
	}
}

func TestARedirectedWayLeadsElsewhere(t *testing.T) {
	w, err := newWay(echo(t), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	old, oldLines := open(t, w)
	fmt.Fprintln(old, "a")
	oldLines.Scan()
	to := echo(t)
	w.redirect(to)
	if oldLines.Scan() {
		t.Error("a connection to the old home goes on")
	}
	c, lines := open(t, w)
	fmt.Fprintln(c, "b")
	if !lines.Scan() || lines.Text() != "b" {
		t.Errorf("the new home answered %q: %v", lines.Text(), lines.Err())
	}
}
