package chunkstore

import (
	"context"
	"errors"
	"io"
	"log/slog"
)

// Classes of error; test with errors.Is.
var (
	ErrCorrupt  = errors.New("corrupt store")                    // data on disk is not what was written
	ErrNotFound = errors.New("not in the store")                 // no such manifest or record
	ErrLocked   = errors.New("store is held by another process") // one process owns a store
	ErrVersion  = errors.New("store of an unknown kind or version")
)

// Options open a store.
type Options struct {
	Logger     *slog.Logger // nil = discard
	CacheBytes int64        // decoded blocks, shared by all readers; 0 = 64 MiB
	ReadOnly   bool
	// MustExist refuses to make a new store in an empty directory that should hold one.
	MustExist bool
}

// ID is a manifest's number: dense, never reused.
type ID uint64

// Kind tells what a manifest spells.
type Kind uint8

// Kinds of manifest.
const (
	KindImage Kind = iota + 1
	KindDocument
)

// Manifest describes one stored byte stream.
type Manifest struct {
	ID     ID
	Kind   Kind
	Size   int64 // bytes
	Chunks int64
	Digest [32]byte // BLAKE3 tree over chunk hashes: equal digests mean equal bytes and cuts
	New    int64    // bytes of chunks that were new to the store when it was committed
}

// Store is open on one directory; safe for concurrent use.
type Store struct{}

// Open opens or makes the store in dir and sweeps what a crash left.
func Open(dir string, opts Options) (*Store, error) { return nil, errors.ErrUnsupported }

// Close waits for readers and background work.
func (s *Store) Close() error { return errors.ErrUnsupported }

// Hint says what the next bytes of an ingest are; a chunk starts there.
type Hint struct {
	Path string  // sort and prediction key; "" for metadata
	Size int64   // bytes until the next hint, -1 unknown
	Prev []Range // where the previous version of these bytes lies in stored manifests; may be empty
}

// Range is a part of a stored manifest.
type Range struct {
	Manifest ID
	Off, Len int64
}

// IngestOptions are for NewIngest.
type IngestOptions struct {
	Kind       Kind
	HeaderSize int  // bytes at the start that are given last, by Header
	Background bool // use the better, slower compression policy
	NoSync     bool // do not wait for the disk at commit
}

// Ingest takes one byte stream; used by one goroutine. After an error, and always after use, call Abort (a no-op after Commit).
type Ingest struct{}

// NewIngest starts one. Any number may run side by side.
func (s *Store) NewIngest(ctx context.Context, opts IngestOptions) (*Ingest, error) {
	return nil, errors.ErrUnsupported
}

// Hint starts a chunk and says what follows.
func (in *Ingest) Hint(h Hint) error { return errors.ErrUnsupported }

// Write takes the next bytes.
func (in *Ingest) Write(p []byte) (int, error) { return 0, errors.ErrUnsupported }

// Header gives the first HeaderSize bytes.
func (in *Ingest) Header(p []byte) error { return errors.ErrUnsupported }

// Commit makes the manifest durable together with the records fn writes, in one Badger transaction. fn may be nil.
func (in *Ingest) Commit(ctx context.Context, fn func(tx *Tx, m Manifest) error) (Manifest, error) {
	return Manifest{}, errors.ErrUnsupported
}

// Abort drops what was taken.
func (in *Ingest) Abort() {}

// Tx reads and writes records, and deletes manifests, in one Badger transaction.
// Records are small values under (bucket, key); iteration is in key order.
type Tx struct{}

// Update runs fn in a read-write transaction, retried on conflict; sync waits for the disk.
func (s *Store) Update(ctx context.Context, sync bool, fn func(tx *Tx) error) error {
	return errors.ErrUnsupported
}

// View runs fn in a read-only transaction.
func (s *Store) View(ctx context.Context, fn func(tx *Tx) error) error { return errors.ErrUnsupported }

// Get reads a record; ErrNotFound.
func (tx *Tx) Get(bucket, key string) ([]byte, error) { return nil, errors.ErrUnsupported }

// Put writes a record.
func (tx *Tx) Put(bucket, key string, value []byte) error { return errors.ErrUnsupported }

// Delete removes a record; it is no error if there is none.
func (tx *Tx) Delete(bucket, key string) error { return errors.ErrUnsupported }

// Scan calls fn for the records of bucket with keys >= from, in order, until fn returns false. Value is valid during the call.
func (tx *Tx) Scan(bucket, from string, fn func(key string, value []byte) (bool, error)) error {
	return errors.ErrUnsupported
}

// DeleteManifest makes a manifest's chunks garbage, unless others name them.
func (tx *Tx) DeleteManifest(id ID) error { return errors.ErrUnsupported }

// Manifest describes a stored stream; ErrNotFound.
func (s *Store) Manifest(ctx context.Context, id ID) (Manifest, error) {
	return Manifest{}, errors.ErrUnsupported
}

// Manifests lists all stored streams in order of their numbers.
func (s *Store) Manifests(ctx context.Context) ([]Manifest, error) { return nil, errors.ErrUnsupported }

// Reader reads a stored stream; safe for concurrent use. It pins the manifest against collection until Close.
type Reader struct{}

// OpenManifest opens a stream for reading.
func (s *Store) OpenManifest(ctx context.Context, id ID) (*Reader, error) {
	return nil, errors.ErrUnsupported
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) { return 0, errors.ErrUnsupported }

// Size is the stream's length in bytes.
func (r *Reader) Size() int64 { return 0 }

// Close unpins.
func (r *Reader) Close() error { return nil }

// WriteTo streams the whole manifest with read-ahead.
func (r *Reader) WriteTo(w io.Writer) (int64, error) { return 0, errors.ErrUnsupported }

// GCStats says what a collection did. Bytes are allocated bytes.
type GCStats struct {
	Chunks    int64 // collected
	Bytes     int64 // given back to the file system
	Rewritten int64 // bytes of live payload moved
}

// GC collects what no manifest needs and gives the bytes back; runs beside readers and writers.
func (s *Store) GC(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return GCStats{}, errors.ErrUnsupported
}

// Optimize re-orders, re-bases and recompresses cold blocks; interruptible by ctx and crash-safe.
func (s *Store) Optimize(ctx context.Context, progress func(done, total int64)) (GCStats, error) {
	return GCStats{}, errors.ErrUnsupported
}

// Usage is space accounting of a set of manifests, in bytes.
type Usage struct {
	Logical     int64 // sum of the streams' lengths
	Stored      int64 // compressed payload they need, delta bases included
	Unique      int64 // part of Stored that only this set needs
	Shared      int64 // part of Stored that others need too
	Reclaimable int64 // what deleting the set and collecting would free
}

// Usage accounts for a set of manifests against all others of the store.
func (s *Store) Usage(ctx context.Context, ids ...ID) (Usage, error) {
	return Usage{}, errors.ErrUnsupported
}

// Stats is the whole store.
type Stats struct {
	Manifests int64
	Chunks    int64
	Logical   int64 // of all manifests
	Payload   int64 // live compressed bytes
	Garbage   int64 // compressed bytes that no manifest needs
	Packs     int64 // allocated bytes of packs
	Index     int64 // allocated bytes of Badger
}

// Stats accounts for the store from incrementally kept figures.
func (s *Store) Stats(ctx context.Context) (Stats, error) { return Stats{}, errors.ErrUnsupported }

// CheckOptions are for Check.
type CheckOptions struct {
	ReadData bool // decode every block and verify every chunk's hash
	Progress func(done, total int64)
}

// Problem is one thing wrong with the store.
type Problem struct {
	Where     string
	What      string
	Manifests []ID // that are hit
}

// Check verifies the store.
func (s *Store) Check(ctx context.Context, opts CheckOptions) ([]Problem, error) {
	return nil, errors.ErrUnsupported
}
