// The program of the test images: what a container does in a test, and what it tells the witness.
//
// Every run has a random id. It is told when it starts, when it is asked to end and when it ends,
// so that a test can count runs without asking Kubernetes.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: app COMMAND [ARGUMENT]
  serve           answer over HTTP until asked to end
  sleep [SECONDS] do nothing, for ever if no seconds are given; 143 when asked to end before
  exit CODE[,...] end with the code; of several with the one of the Job's completion index
  burn SECONDS    keep one CPU busy
  eat MEBIBYTES   fill memory, and keep it until asked to end
  say WORD        tell the witness a word: what a hook does
  version         print the image's version
  cat, fill PATH MEBIBYTES, digest PATH, lines COUNT [MILLISECONDS [CODE]], window, echo,
  spill MEBIBYTES LINE_BYTES [wait], take, tick MILLISECONDS
                  what kubectl exec, cp, logs, attach and port-forward are tried with; and called
                  as tar, what kubectl cp calls
  show PATH... [wait], notice PATH, ask PATH...
                  print what the container was given, when a file changes, and what the API
                  server answers to the pod's service account
  fetch URL...    print what others answer, who are called by name
  end             ask the container's first process to end, from an exec
  registry ADDRESS USER PASSWORD
                  hand out an image of this program, private/app, to that user
  witness         hear reports and print them
Environment: WITNESS (URL; without it nothing is told), SPACE, POD_UID, CONTAINER, VERSION;
LINGER (seconds that pass between being asked to end, or saying a word, and ending).`

const mebibyte = 1 << 20

func main() {
	if filepath.Base(os.Args[0]) == "tar" {
		pack(os.Args[1:])
		return
	}
	arguments := append(os.Args[1:], "", "", "", "")
	command, argument := arguments[0], arguments[1]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch command {
	case "version":
		fmt.Println(os.Getenv("VERSION"))
		return
	case "witness":
		check(hearReports(ctx))
		return
	}
	if useTool(ctx, command, arguments[1:]) {
		return
	}
	run := newRun()
	if command == "say" {
		run.tell(argument, "")
		linger()
		return
	}
	var socket net.Listener
	if command == "serve" {
		// Who hears of the start may ask at once.
		socket = open()
	}
	run.tell("started", strings.TrimSpace(command+" "+argument))
	code := act(ctx, socket, command, argument)
	if ctx.Err() != nil {
		run.tell("asked to end", "")
		linger()
	}
	run.tell("ended", strconv.Itoa(code))
	os.Exit(code)
}

// act does what the container is for, and returns its exit code.
func act(ctx context.Context, socket net.Listener, command, argument string) int {
	switch command {
	case "serve":
		check(serve(ctx, socket))
	case "sleep":
		return sleep(ctx, argument)
	case "exit":
		return exitCode(argument)
	case "burn":
		burn(ctx, argument)
	case "eat":
		eaten := eat(number(argument))
		<-ctx.Done()
		runtime.KeepAlive(eaten)
	default:
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	return 0
}

// terminated is the exit code of a program that SIGTERM ends because it does nothing about it.
const terminated = 128 + int(syscall.SIGTERM)

func sleep(ctx context.Context, seconds string) int {
	var over <-chan time.Time
	if seconds != "" {
		over = time.After(time.Duration(number(seconds)) * time.Second)
	}
	select {
	case <-ctx.Done():
		return terminated
	case <-over:
		return 0
	}
}

func exitCode(argument string) int {
	codes := strings.Split(argument, ",")
	if len(codes) == 1 {
		return number(argument)
	}
	return number(codes[number(os.Getenv("JOB_COMPLETION_INDEX"))])
}

func burn(ctx context.Context, seconds string) {
	until := time.Now().Add(time.Duration(number(seconds)) * time.Second)
	for time.Now().Before(until) && ctx.Err() == nil {
	}
}

// eat fills so much memory that the kernel has to give every page of it.
func eat(mebibytes int) [][]byte {
	var eaten [][]byte
	for range mebibytes {
		piece := make([]byte, mebibyte)
		for at := 0; at < len(piece); at += os.Getpagesize() {
			piece[at] = 1
		}
		eaten = append(eaten, piece)
	}
	return eaten
}

func linger() {
	if seconds := os.Getenv("LINGER"); seconds != "" {
		time.Sleep(time.Duration(number(seconds)) * time.Second)
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
