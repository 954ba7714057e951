// Branches shows the Go API: a directory becomes a workspace, a snapshot freezes it, and two branches go separate ways.
//
//	go run ./examples/branches DIR
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"snapfs/sandbox"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: branches DIR")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := branches(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "branches:", err)
		os.Exit(1)
	}
}

// branches works in a home of its own in a temporary directory and takes it away again.
func branches(ctx context.Context, source string) (err error) {
	source, err = filepath.Abs(source)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "branches-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	home, err := sandbox.Open(ctx, filepath.Join(tmp, "home"), sandbox.Options{})
	if err != nil {
		return err
	}
	// Close unmounts everything and lets go of the home. Until then no other process can open it.
	defer func() { err = errors.Join(err, home.Close()) }()

	origin, err := home.Create(ctx, sandbox.CreateRequest{Name: "origin", Source: source})
	if err != nil {
		return err
	}
	base, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: origin.ID, Name: "base"})
	if err != nil {
		return err
	}
	for _, name := range []string{"left", "right"} {
		ws, err := home.Branch(ctx, sandbox.RestoreRequest{Snapshot: base.ID})
		if err != nil {
			return err
		}
		ws, err = home.Mount(ctx, sandbox.MountRequest{
			Workspace: ws.ID, Mountpoint: filepath.Join(tmp, name), MakeMountpoint: true,
		})
		if err != nil {
			return err
		}
		// A process must not wait for a mount that it serves itself, so another one writes into it.
		if err := touch(ctx, filepath.Join(ws.Mountpoint, name+".txt")); err != nil {
			return err
		}
		fmt.Printf("%s changed:\n", ws.ID)
		for c, err := range sandbox.AllChanges(ctx, home, sandbox.DiffRequest{A: base.ID, B: ws.ID}) {
			if err != nil {
				return err
			}
			fmt.Printf("  %s %s\n", c.Kind, c.Path)
		}
	}
	stats, err := home.Stats(ctx, sandbox.StatsRequest{})
	if err != nil {
		return err
	}
	fmt.Printf("%d workspaces share %d bytes\n", stats.Workspaces, stats.Stored)
	return nil
}
