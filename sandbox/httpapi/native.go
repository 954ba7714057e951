package httpapi

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// native are the calls of package wire that are of use to clients of the network, with what they ask and give. The daemon
// handles them; the document has them, too. A result of nil is empty.
var native = []struct {
	call            string
	request, result any
	line            any // what each line before the result has, nil for none
}{
	{wire.CallCreate, api.CreateRequest{}, api.Workspace{}, api.Progress{}},
	{wire.CallUp, api.UpRequest{}, api.UpResult{}, api.Progress{}},
	{wire.CallSnapshot, api.SnapshotRequest{}, api.Snapshot{}, api.Progress{}},
	{wire.CallRestore, api.RestoreRequest{}, api.Workspace{}, nil},
	{wire.CallBranch, api.RestoreRequest{}, api.Workspace{}, nil},
	{wire.CallFork, api.ForkRequest{}, api.Workspace{}, nil},
	{wire.CallRollback, api.RollbackRequest{}, api.RollbackResult{}, nil},
	{wire.CallTurn, api.TurnRequest{}, api.TurnResult{}, nil},
	{wire.CallTurns, api.TurnsRequest{}, api.TurnPage{}, nil},
	{wire.CallUndo, api.UndoRequest{}, api.UndoResult{}, nil},
	{wire.CallRedo, api.UndoRequest{}, api.UndoResult{}, nil},
	{wire.CallApply, api.ApplyRequest{}, api.ApplyResult{}, api.Progress{}},
	{wire.CallBase, api.BaseRequest{}, api.BaseResult{}, api.Progress{}},
	{wire.CallConflicts, api.ConflictsRequest{}, api.ConflictsResult{}, nil},
	{wire.CallReads, api.RefRequest{}, api.ReadsResult{}, api.Read{}},
	{wire.CallPause, api.PauseRequest{}, api.Workspace{}, nil},
	{wire.CallResume, api.RefRequest{}, api.Workspace{}, nil},
	{wire.CallWorkspaces, api.ListRequest{}, api.WorkspacePage{}, nil},
	{wire.CallSnapshots, api.ListRequest{}, api.SnapshotPage{}, nil},
	{wire.CallShow, api.RefRequest{}, api.Object{}, nil},
	{wire.CallRename, api.RenameRequest{}, api.Object{}, nil},
	{wire.CallLabel, api.LabelRequest{}, api.Workspace{}, nil},
	{wire.CallDiff, api.DiffRequest{}, nil, api.Change{}},
	{wire.CallFiles, api.FilesRequest{}, nil, api.File{}},
	{wire.CallRead, api.FilesRequest{}, api.File{}, nil},
	{wire.CallDelete, api.RefRequest{}, nil, nil},
	{wire.CallDestroy, api.DestroyRequest{}, api.DestroyResult{}, nil},
	{wire.CallExport, api.ExportRequest{}, api.ExportResult{}, api.Progress{}},
	{wire.CallStats, api.StatsRequest{}, api.Stats{}, nil},
	{wire.CallPrune, api.PruneRequest{}, api.PruneResult{}, nil},
	{wire.CallEvents, api.EventsRequest{}, nil, api.Event{}},
	{wire.CallInfo, wire.None{}, wire.Info{}, nil},
}

// addNative puts the daemon's own calls into the document.
func (s *Server) addNative() {
	document := s.api.OpenAPI()
	schema := func(v any) *huma.Schema {
		return document.Components.Schemas.Schema(reflect.TypeOf(v), true, "")
	}
	schemas := document.Components.Schemas.Map()
	for _, n := range native {
		request := schema(n.request)
		schemas[reflect.TypeOf(n.request).Name()].Required = nil // what is left out is zero
		frame := &huma.Schema{
			Type:        huma.TypeObject,
			Description: "one line of the answer; the last has the result or the error",
			Properties:  map[string]*huma.Schema{"error": schema(wire.Error{}), "result": {Type: huma.TypeObject}},
		}
		if n.result != nil {
			frame.Properties["result"] = schema(n.result)
		}
		if n.line != nil {
			frame.Properties[lineField(n.line)] = schema(n.line)
		}
		document.AddOperation(&huma.Operation{
			OperationID: "native-" + n.call, Method: http.MethodPost, Path: wire.Route(n.call), Tags: []string{"native"},
			Summary: "The call " + n.call + " of the daemon's own protocol", Security: []map[string][]string{{"bearerAuth": {}}},
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
				"application/json": {Schema: request},
			}},
			Responses: map[string]*huma.Response{"200": {
				Description: "lines of JSON", Content: map[string]*huma.MediaType{"application/x-ndjson": {Schema: frame}},
			}},
		})
	}
	// It has its own way to JSON.
	text := &huma.Schema{Type: huma.TypeString}
	*schemas[reflect.TypeFor[api.RefPayload]().Name()] = huma.Schema{
		Type: huma.TypeObject, Required: []string{"snapshot", "workspace"}, AdditionalProperties: true,
		Properties: map[string]*huma.Schema{"snapshot": text, "workspace": text},
	}
}

// lineField is the field of a wire.Frame that has a value of a type.
func lineField(v any) string {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[wire.Frame]()) {
		if f.Type == reflect.PointerTo(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return name
		}
	}
	panic("no field of a frame has a " + reflect.TypeOf(v).String())
}
