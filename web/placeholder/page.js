// A stand-in for the phone page, so that a relay built by cargo alone has something to look at.
// What agents say is put in as text only, never as HTML.
// @ts-check

const $ = (id) => document.getElementById(id);
const state = { sessions: new Map(), prompts: new Map(), messages: new Map(), growing: new Map(), chosen: null };
let socket = null;
let wait = 500;

function element(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

function say(frame) {
  socket.send(JSON.stringify({ protocol_version: 1, ...frame }));
}

async function start() {
  const me = await fetch("/api/me");
  $("pairing").hidden = me.ok;
  if (me.ok) return connect();
  $("state").textContent = "not paired";
  $("pairing").code.value = new URLSearchParams(location.hash.slice(1)).get("pair") ?? "";
}

$("pairing").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await fetch("/api/pair", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(Object.fromEntries(new FormData(event.target))),
  });
  $("refusal").textContent = answer.ok ? "" : (await answer.json()).error.message;
  if (answer.ok) {
    history.replaceState(null, "", "/");
    start();
  }
});

function connect() {
  socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/client-ws`);
  let beat;
  socket.onopen = () => say({ type: "connection_hello", peer_role: "browser", client_name: "placeholder" });
  socket.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.type === "connection_ack") {
      wait = 500;
      $("state").textContent = "connected";
      clearInterval(beat);
      beat = setInterval(() => say({ type: "heartbeat" }), frame.heartbeat_interval_ms);
      state.prompts = new Map(frame.open_prompts.map((prompt) => [prompt.prompt_id, prompt]));
      if (state.chosen) choose(state.chosen);
    }
    apply(frame);
    draw();
  };
  socket.onclose = ({ code, reason }) => {
    clearInterval(beat);
    $("state").textContent = `not connected${reason ? `: ${reason}` : ""}`;
    // 4500 and up: coming back is pointless until a person changed something.
    if (code >= 4500 && code < 5000) return void start();
    setTimeout(start, wait);
    wait = Math.min(wait * 2, 30000);
  };
}

function keep(session, message) {
  if (!state.messages.has(session)) state.messages.set(session, new Map());
  const known = state.messages.get(session).get(message.message_id);
  state.messages.get(session).set(message.message_id, { ...known, ...message });
}

function apply(frame) {
  const id = frame.session_id;
  switch (frame.type) {
    case "session_snapshot":
      state.sessions = new Map(frame.sessions.map((session) => [session.session_id, session]));
      break;
    case "session_up":
      state.sessions.set(frame.session.session_id, frame.session);
      break;
    case "session_down":
      state.sessions.get(id).status = "disconnected";
      break;
    case "session_status":
      Object.assign(state.sessions.get(id), { status: frame.status, activity: frame.activity });
      break;
    case "session_closed":
      state.sessions.delete(id);
      break;
    case "permission_prompt":
      state.prompts.set(frame.prompt_id, frame);
      break;
    case "permission_prompt_update":
      if (frame.state !== "reverted") state.prompts.delete(frame.prompt_id);
      break;
    case "permission_prompt_expired":
      state.prompts.delete(frame.prompt_id);
      break;
    case "history_snapshot":
      state.messages.set(id, new Map(frame.messages.map((message) => [message.message_id, message])));
      break;
    case "message_update": {
      const known = state.growing.get(frame.message_id)?.text ?? "";
      state.growing.set(frame.message_id, { session: id, text: known.slice(0, frame.offset) + frame.text });
      break;
    }
    case "message_event":
      state.growing.delete(frame.message.message_id);
      keep(id, frame.message);
      break;
    case "message_accepted":
      keep(id, frame.message);
      break;
    case "message_delivered":
    case "message_failed":
      keep(id, { message_id: frame.message_id, status: frame.delivery ?? frame.status, error: frame.error });
  }
}

function choose(session) {
  state.chosen = session;
  say({ type: "history_request", session_id: session, limit: 200 });
}

function drawPrompt(prompt) {
  const answer = (choice) =>
    say({ type: "permission_response", request_id: crypto.randomUUID(), session_id: prompt.session_id, prompt_id: prompt.prompt_id, choice_id: choice });
  const choices = prompt.choices.map((choice) =>
    element("button", { type: "button", textContent: choice.label, onclick: () => answer(choice.choice_id) }),
  );
  const command = prompt.command ? [element("pre", { textContent: prompt.command })] : [];
  return element("div", { className: "card prompt" }, prompt.prompt_text, ...command, element("div", { className: "choices" }, ...choices));
}

function drawSession(session) {
  const title = [session.display_name ?? session.agent_type, session.workspace_name].filter(Boolean).join(" · ");
  const doing = session.activity?.label ?? session.activity?.kind ?? session.status;
  return element("button", { className: "card", type: "button", onclick: () => (choose(session.session_id), draw()) },
    element("strong", { textContent: title }),
    element("div", { className: "quiet", textContent: `${session.machine_label ?? ""} · ${session.status} · ${doing}` }));
}

function drawMessage(message) {
  const status = message.status ? [element("div", { className: "quiet", textContent: message.error ? `${message.status}: ${message.error.message}` : message.status })] : [];
  return element("li", { className: message.role }, message.content ?? "", ...status);
}

function draw() {
  const sessions = [...state.sessions.values()];
  $("prompts").replaceChildren(...[...state.prompts.values()].map(drawPrompt));
  const nothing = element("p", { textContent: "No agents yet. They appear here as soon as a dev box shows one." });
  $("sessions").replaceChildren(...(sessions.length ? sessions.map(drawSession) : [nothing]));
  $("sessions").hidden = Boolean(state.chosen);
  $("chat").hidden = !state.chosen;
  if (!state.chosen) return;
  $("title").textContent = state.sessions.get(state.chosen)?.display_name ?? state.chosen;
  const growing = [...state.growing.values()].filter((tail) => tail.session === state.chosen);
  $("messages").replaceChildren(
    ...[...(state.messages.get(state.chosen)?.values() ?? [])].map(drawMessage),
    ...growing.map((tail) => element("li", { className: "growing", textContent: tail.text })),
  );
}

$("back").onclick = () => ((state.chosen = null), draw());
$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = event.target.content.value;
  say({ type: "send_message", client_message_id: crypto.randomUUID(), session_id: state.chosen, content, created_at: new Date().toISOString() });
  event.target.reset();
});

start();
