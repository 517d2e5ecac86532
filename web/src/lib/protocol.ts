// Made from the protocol crate by scripts/generate. Do not edit.

export const PROTOCOL_VERSION = 1;

/** Every error code the relay writes. One that is read may be any word: a proxy's own passes through. */
export type ErrorCode =
  | "protocol_version_unsupported"
  | "invalid_message"
  | "session_not_connected"
  | "session_unknown"
  | "send_rejected"
  | "send_injection_failed"
  | "selector_failure"
  | "history_not_available"
  | "resume_cursor_invalid"
  | "no_proxy_connected"
  | "launch_timeout"
  | "agent_not_open"
  | "launch_not_supported"
  | "unauthorized"
  | "prompt_not_found"
  | "agent_not_active"
  | "model_not_available"
  | "control_not_supported"
  | "config_read_failed"
  | "prompt_changed"
  | "click_not_applied"
  | "composer_not_empty"
  | "agent_busy"
  | "not_verified"
  | "rate_limited"
  | "limit_reached"
  | "content_too_large"
  | "storage_full";

/**
 * A block of a kind that this release does not know. It has a `kind`, but is typed without one, so that
 * a `switch` over the known kinds narrows and what is left for its default branch is this.
 */
export type UnknownBlock = { kind?: never; [field: string]: unknown };

/** What the agent is doing, in a machine's word and a person's. */
export type Activity = {
  kind: ActivityKind;
  label?: string;
  updated_at?: Timestamp;
};

/** What the agent is doing. */
export type ActivityKind = "thinking" | "generating" | "reading_files" | "running_command" | "applying_patch" | "waiting_for_user" | "idle" | (string & {});

/** What an agent is set to, as its page shows it. */
export type AgentConfig = {
  session_id: SessionId;
  /** `unknown` if it cannot be read. */
  model_id: string;
  permission_mode?: string;
  file_access_scope?: string;
  available_models?: Array<string>;
  /** What the proxy can do with this agent; a missing key is unknown, not false. */
  capabilities?: { [key in string]: boolean };
  read_at?: Timestamp;
};

/** Asks for a fresh `agent_config`. */
export type AgentConfigRequest = {
  request_id?: RequestId;
  session_id: SessionId;
};

/** How a control command ended; only the browser that gave it hears. */
export type AgentControlResult = {
  /** That of the command; absent only if the command had none. */
  request_id?: RequestId;
  session_id: SessionId;
  /** The `type` of the command. */
  command: string;
  result: ControlOutcome;
  error?: WireError;
};

/** Stops a running generation. */
export type AgentInterrupt = {
  request_id: RequestId;
  session_id: SessionId;
};

/** Changes the model; confirmed by the `agent_config` that follows. */
export type AgentSetModel = {
  request_id?: RequestId;
  session_id: SessionId;
  model_id: string;
};

/** The settings themselves; keyed by session in `connection_ack`. */
export type AgentSettings = {
  /** `unknown` if it cannot be read. */
  model_id: string;
  permission_mode?: string;
  file_access_scope?: string;
  available_models?: Array<string>;
  /** What the proxy can do with this agent; a missing key is unknown, not false. */
  capabilities?: { [key in string]: boolean };
  read_at?: Timestamp;
};

/** Which agent a session talks to. */
export type AgentType = "claude" | "codex" | "gemini" | (string & {});

/** A file that goes with a send. */
export type Attachment = {
  attachment_id: AttachmentId;
  name?: string;
  /** `uploaded_file` for what came through `POST /api/attachments`. */
  kind?: string;
};

/** An uploaded file. */
export type AttachmentId = string;

/** A part of a message with a structure of its own. */
export type Block =
  | { kind: "text", text: string }
  | { kind: "thinking", text: string }
  | { kind: "code", language?: string, text: string }
  | { kind: "tool_call", name: string, input?: string, output?: string }
  | { kind: "diff", path?: string, text: string }
  | { kind: "image", attachment_id?: AttachmentId, alt?: string }
  | UnknownBlock;

/** What a browser may say. */
export type BrowserToRelay =
  | { type: "connection_hello" } & ConnectionHello
  | { type: "connection_error" } & PeerError
  | { type: "heartbeat" } & Heartbeat
  | { type: "session_interest" } & SessionInterest
  | { type: "send_message" } & SendMessage
  | { type: "history_request" } & HistoryRequest
  | { type: "launch_session" } & LaunchSession
  | { type: "close_session" } & CloseSession
  | { type: "permission_response" } & PermissionResponse
  | { type: "agent_interrupt" } & AgentInterrupt
  | { type: "agent_config_request" } & AgentConfigRequest
  | { type: "agent_set_model" } & AgentSetModel;

/** One button or option. */
export type Choice = {
  choice_id: ChoiceId;
  label: string;
  is_default: boolean;
};

/** The name of one button or option of a dialog. */
export type ChoiceId = string;

/** Made by the browser before it sends; a retry reuses it. */
export type ClientMessageId = string;

/** Why a session was closed. */
export type CloseReason = "user_requested" | "target_closed" | "proxy_shutdown" | (string & {});

/** Asks the session's proxy to close it. */
export type CloseSession = {
  request_id: RequestId;
  session_id: SessionId;
};

/** Welcome, and everything that is true now. */
export type ConnectionAck = {
  connection_id: ConnectionId;
  heartbeat_interval_ms: number;
  heartbeat_timeout_ms: number;
  /** Frames larger than this are refused. */
  max_frame_bytes?: number;
  ledger_epoch?: Epoch;
  /** To a proxy: the machine it speaks for. */
  machine_id?: MachineId;
  /** To a browser: the latest `agent_config` of each session. */
  session_configs?: { [key in SessionId]: AgentSettings };
  /** To a browser: every dialog that waits. */
  open_prompts?: Array<PermissionPrompt>;
  /** To a browser: its launches still under way. */
  pending_launches?: Array<PendingLaunch>;
};

/** Something was refused. Unless a close frame follows, the socket lives on. */
export type ConnectionError = {
  /** A stable word: one of `ErrorCode`, or a proxy's own. */
  code: string;
  /** A sentence for a person; may change at any time. */
  message: string;
  /** Carried by any frame whose sender wants to hear of its fate. */
  request_id?: RequestId;
  client_message_id?: ClientMessageId;
  session_id?: SessionId;
};

/** The first frame on every socket. */
export type ConnectionHello = {
  peer_role: PeerRole;
  client_name: string;
  client_version?: string;
  /** A proxy's name for its dev box, for people. */
  machine_label?: string;
  /** A proxy's durable id for its dev box. The first one said binds the token. */
  machine_id?: MachineId;
  /** A browser's cursors. */
  resume?: Resume;
};

/** Given by the relay to one open socket. */
export type ConnectionId = string;

/** The two ends a control command can come to. */
export type ControlOutcome = "ok" | "failed";

/** How far a browser has read in one session. */
export type Cursor = {
  session_id: SessionId;
  last_sequence: Sequence;
  /** The epoch the sequence belongs to. */
  ledger_epoch?: Epoch;
};

/** How far a send has come. */
export type DeliveryState = "queued" | "accepted" | "sending_to_proxy" | "delivered" | "failed" | "indeterminate";

/** Why a session became unavailable. */
export type DownReason = "proxy_disconnected" | "not_in_snapshot" | (string & {});

/** What every frame has in common. */
export type Envelope<T> = {
  /** Always 1. */
  protocol_version: number;
  /** The relay's clock when it spoke. */
  server_ts?: Timestamp;
  /** May stand on any frame; what answers that frame names it. */
  request_id?: RequestId;
} & T;

/** Changes only when history was lost, so that a client knows its cursors are worthless. */
export type Epoch = string;

/** The name of one emitted event. */
export type EventId = string;

/** I am still here. */
export type Heartbeat = {
  request_id?: RequestId;
  connection_id?: ConnectionId;
  client_ts?: Timestamp;
};

/** So am I. */
export type HeartbeatAck = {
  request_id?: RequestId;
  connection_id: ConnectionId;
};

/** The events of a session after a cursor, in order. */
export type HistoryDelta = {
  request_id?: RequestId;
  session_id: SessionId;
  ledger_epoch: Epoch;
  from_sequence: Sequence;
  last_sequence: Sequence;
  verdict?: Verdict;
  events: Array<SessionEvent>;
};

/** Asks for a session's transcript, or for what happened since a cursor. */
export type HistoryRequest = {
  session_id: SessionId;
  /** Absent: a snapshot. Present: the events after it. */
  after_sequence?: Sequence;
  /** The epoch `after_sequence` belongs to. */
  ledger_epoch?: Epoch;
  /** A snapshot of only the newest so many messages. */
  limit?: number;
  /** With a snapshot: only messages from before this sequence. */
  before_sequence?: Sequence;
};

/** The known transcript of a session, or one page of it. */
export type HistorySnapshot = {
  request_id?: RequestId;
  session_id: SessionId;
  ledger_epoch: Epoch;
  /** Live events after this one are news; continue from here. */
  last_sequence: Sequence;
  verdict?: Verdict;
  /** Oldest first. */
  messages: Array<Message>;
  /** Where the oldest message stands: ask with `before_sequence` for what came before. */
  first_sequence?: Sequence;
  /** Whether older messages exist. */
  has_more?: boolean;
};

/** Asks a machine's proxy for a new agent chat. */
export type LaunchSession = {
  request_id: RequestId;
  agent_type: AgentType;
  workspace_path?: string;
  window_title?: string;
  /** Needed only where several machines are connected. */
  machine_id?: MachineId;
};

/** One dev box, bound to the token of its proxy. */
export type MachineId = string;

/** One message of a transcript, as the ledger keeps it. */
export type Message = {
  message_id: MessageId;
  role: Role;
  /** The plain text of it all. */
  content: string;
  created_at: Timestamp;
  /** Grows when the message is corrected. Absent means 1. */
  revision?: number;
  /** False when the agent went away in the middle of it. Absent means true. */
  final?: boolean;
  /** The same content with its structure. */
  blocks?: Array<Block>;
  /** The send that caused this message, if a browser did. */
  client_message_id?: ClientMessageId;
  /** How far that send came. */
  status?: DeliveryState;
  attachments?: Array<Attachment>;
  /** The paired device it was sent from. */
  device_name?: string;
};

/** The relay has the send on disk. */
export type MessageAccepted = {
  event_id: EventId;
  sequence: Sequence;
  session_id: SessionId;
  message_id: MessageId;
  client_message_id: ClientMessageId;
  status: DeliveryState;
  accepted_at: Timestamp;
  /** What was sent, so that other devices can show it at once. */
  message?: Message;
};

/** The proxy saw the send arrive in the agent's page. */
export type MessageDelivered = {
  event_id: EventId;
  sequence: Sequence;
  session_id: SessionId;
  message_id: MessageId;
  client_message_id: ClientMessageId;
  status: DeliveryState;
  delivered_at: Timestamp;
};

/** A finished message of the transcript. */
export type MessageEvent = {
  event_id: EventId;
  sequence: Sequence;
  session_id: SessionId;
  message: Message;
};

/** The send came to nothing, or nobody can tell (`delivery: "indeterminate"`). */
export type MessageFailed = {
  event_id: EventId;
  /** Absent only when nothing was recorded: an unknown session, a text too large, a full disk. */
  sequence?: Sequence;
  session_id: SessionId;
  message_id: MessageId;
  client_message_id: ClientMessageId;
  /** Always `failed`, so that a client that knows no `delivery` ends too. */
  status: DeliveryState;
  failed_at: Timestamp;
  error: WireError;
  /** `indeterminate` when the text may have been typed. */
  delivery?: DeliveryState;
};

/** The ledger's name for one transcript message. */
export type MessageId = string;

/**
 * What a growing message gained. Live state, not history: it has no sequence.
 *
 * `text` goes in at `offset`, in UTF-16 code units; what stood from there on is replaced. An
 * `offset` of 0 carries the whole text.
 */
export type MessageUpdate = {
  session_id: SessionId;
  message_id: MessageId;
  revision: number;
  role?: Role;
  offset: number;
  text: string;
  created_at?: Timestamp;
};

/**
 * A peer could not understand the relay. Noted, never answered: two peers that answer errors with
 * errors would never stop.
 */
export type PeerError = {
  code?: string;
  message?: string;
};

/** Who is speaking. */
export type PeerRole = "browser" | "proxy";

/** A launch still under way, told to a browser that comes back. */
export type PendingLaunch = {
  request_id: RequestId;
  agent_type: AgentType;
  machine_id?: MachineId;
  launched_at: Timestamp;
  timeout_at: Timestamp;
};

/** One dialog as the IDE shows it. */
export type PermissionPrompt = {
  session_id: SessionId;
  prompt_id: PromptId;
  /** The whole text, as shown. */
  prompt_text: string;
  /** At least one. */
  choices: Array<Choice>;
  /** Set only where the IDE's own dialog dismisses itself. */
  timeout_ms?: number;
  /** Applied when `timeout_ms` has passed; one of `choices`. */
  default_choice?: ChoiceId;
  detected_at?: Timestamp;
  /** Set by the relay from `timeout_ms`. */
  expires_at?: Timestamp;
  /** Absent means permission. */
  kind?: PromptKind;
  /** What the proxy compares before it clicks. */
  fingerprint?: string;
  /** Several choices may be given at once. */
  multi_select?: boolean;
  /** An answer in the person's own words is possible. */
  free_text?: boolean;
  /** The exact command, where the dialog shows one. */
  command?: string;
  /** The exact change, where the dialog shows one. */
  diff?: string;
};

/** The dialog dismissed itself. */
export type PermissionPromptExpired = {
  session_id: SessionId;
  prompt_id: PromptId;
  /** What the relay told the proxy to apply; absent when it told it nothing. */
  applied_choice?: ChoiceId;
};

/** A dialog's state changed. To every browser; from a proxy only with `vanished`. */
export type PermissionPromptUpdate = {
  session_id: SessionId;
  prompt_id: PromptId;
  state: PromptState;
  /** The answer on its way or applied. */
  choice_id?: ChoiceId;
  /** Who answered. */
  device_name?: string;
  /** Why it was reverted. */
  error?: WireError;
};

/** A person's answer; forwarded to the proxy as it is. */
export type PermissionResponse = {
  request_id?: RequestId;
  session_id: SessionId;
  prompt_id: PromptId;
  /** Required unless `choice_ids` or `text` answers a question. */
  choice_id?: ChoiceId;
  /** Several choices, where the prompt is `multi_select`. */
  choice_ids?: Array<ChoiceId>;
  /** An answer in words, where the prompt takes `free_text`. */
  text?: string;
};

/** The name of one instance of a dialog: two equal dialogs in a row have two. */
export type PromptId = string;

/** What sort of answer a dialog wants. */
export type PromptKind = "permission" | "question" | "plan" | (string & {});

/** How far a dialog has come. */
export type PromptState = "open" | "answering" | "resolved" | "reverted" | "vanished";

/** What a browser hears. */
export type RelayToBrowser =
  | { type: "connection_ack" } & ConnectionAck
  | { type: "connection_error" } & ConnectionError
  | { type: "heartbeat_ack" } & HeartbeatAck
  | { type: "session_snapshot" } & SessionSnapshot
  | { type: "session_up" } & SessionUp
  | { type: "session_down" } & SessionDown
  | { type: "session_status" } & SessionStatusChange
  | { type: "session_launching" } & SessionLaunching
  | { type: "session_launch_ack" } & SessionLaunchAck
  | { type: "session_launch_failed" } & SessionLaunchFailed
  | { type: "session_closed" } & SessionClosed
  | { type: "message_accepted" } & MessageAccepted
  | { type: "message_delivered" } & MessageDelivered
  | { type: "message_failed" } & MessageFailed
  | { type: "message_event" } & MessageEvent
  | { type: "message_update" } & MessageUpdate
  | { type: "history_snapshot" } & HistorySnapshot
  | { type: "history_delta" } & HistoryDelta
  | { type: "permission_prompt" } & PermissionPrompt
  | { type: "permission_prompt_expired" } & PermissionPromptExpired
  | { type: "permission_prompt_update" } & PermissionPromptUpdate
  | { type: "agent_config" } & AgentConfig
  | { type: "agent_control_result" } & AgentControlResult;

/** Ties an answer to its question; unique per socket only. */
export type RequestId = string;

/** How far a browser has read. */
export type Resume = {
  sessions: Array<Cursor>;
};

/** Who said a message. */
export type Role = "user" | "assistant" | "system" | "tool" | (string & {});

/** A person's message on its way to an agent: browser to relay, and unchanged on to the proxy. */
export type SendMessage = {
  client_message_id: ClientMessageId;
  session_id: SessionId;
  /** At least one of `content` and `attachments` must hold something. */
  content?: string;
  attachments?: Array<Attachment>;
  created_at: Timestamp;
};

/** Grows by at least one with each event of a session; never goes back, never repeats. */
export type Sequence = number;

/** The durable description of one agent chat. */
export type Session = {
  session_id: SessionId;
  agent_type: AgentType;
  display_name?: string;
  window_title?: string;
  workspace_name?: string;
  workspace_path?: string;
  /** Which dev box; set by the relay from the proxy's token, whatever the proxy says. */
  machine_id?: MachineId;
  machine_label?: string;
  /** The proxy's fingerprint for finding this chat again. */
  target_signature?: string;
  /** The debug target that shows it now. Transient: never a name for a person. */
  target_id?: string;
  last_seen_at?: Timestamp;
  status: SessionStatus;
  activity?: Activity;
};

/** The session was closed; every browser hears it. */
export type SessionClosed = {
  /** The `close_session` that caused it; absent when the proxy closed it on its own. */
  request_id?: RequestId;
  session_id: SessionId;
  reason?: CloseReason;
};

/** A session became unavailable. Its history stays readable. */
export type SessionDown = {
  event_id: EventId;
  sequence: Sequence;
  session_id: SessionId;
  reason: DownReason;
};

/** One entry of a session's history. Live, the same entry travels as a frame of the same `type`. */
export type SessionEvent =
  | { type: "session_up" } & SessionUp
  | { type: "session_down" } & SessionDown
  | { type: "session_status" } & SessionStatusChange
  | { type: "message_accepted" } & MessageAccepted
  | { type: "message_delivered" } & MessageDelivered
  | { type: "message_failed" } & MessageFailed
  | { type: "message_event" } & MessageEvent;

/** The durable name of one logical agent chat. */
export type SessionId = string;

/** The sessions whose transcript a browser wants now. Without it, it gets everything. */
export type SessionInterest = {
  sessions: Array<SessionId>;
};

/** The new session exists. */
export type SessionLaunchAck = {
  request_id: RequestId;
  session_id: SessionId;
  agent_type?: AgentType;
};

/** The launch came to nothing. */
export type SessionLaunchFailed = {
  request_id: RequestId;
  agent_type?: AgentType;
  /** A sentence for a person. */
  reason: string;
  /** A stable word: one of `ErrorCode`, or a proxy's own. */
  error_code: string;
};

/** The launch was forwarded; only the browser that asked hears it. */
export type SessionLaunching = {
  request_id: RequestId;
  agent_type: AgentType;
};

/** Every session that is not closed; sent after each handshake. */
export type SessionSnapshot = {
  sessions: Array<Session>;
};

/** How well a session can be read and driven now. */
export type SessionStatus = "healthy" | "degraded" | "disconnected" | "scraping_failed" | "agent_ui_changed" | (string & {});

/** A session's health or activity changed. */
export type SessionStatusChange = {
  event_id: EventId;
  sequence: Sequence;
  session_id: SessionId;
  status: SessionStatus;
  activity?: Activity;
};

/** A session became available, came back, or is described anew. */
export type SessionUp = {
  event_id: EventId;
  sequence: Sequence;
  session: Session;
};

/**
 * An ISO 8601 UTC time such as `2026-03-19T10:15:30.000Z`.
 *
 * Peers' times are carried as they were said; the relay never computes with them.
 */
export type Timestamp = string;

/** Whether a cursor could be continued from. */
export type Verdict = "ok" | "gap";

/** An error as it stands in a frame. */
export type WireError = {
  /** A stable word: one of `ErrorCode`, or a proxy's own. */
  code: string;
  /** A sentence for a person; may change at any time. */
  message: string;
};
