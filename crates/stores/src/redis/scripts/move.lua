#!lua
-- Moves what is due in one lane straight into the streams that its topics name. Not run at all when Redis is out of memory.
--
-- A message that is not simple stays where it is, for a claim: one that was tried before, has a longest lateness, has a property
-- that is named like a field of ours, or whose stream's key is no stream. So does one that cannot be read: nothing of it is sent.
--
-- KEYS    as in prelude.lua; 14 the set of paused lanes; then streams. Never in a Cluster: these are in other slots
-- ARGV    lane of a sink, the node that must own it here (instance 8, fencing token 8), how many at most (up to 255), how many bytes at most (about), the most entries of a stream and the age of the
--         oldest in ms, both about, or 0 for no limit
-- result  nothing, if another node owns the lane; else when the next of the lane is ready ("" if none); "r" if something due needs a claim, else ""; of each that was
--         moved: the number of its stream from 1 (1 byte), the length of its member of `wait` (1), the member; then the
--         streams that are missing among the KEYS
local PAUSED = 14
-- A stream that is new costs as much as ten entries: so many of them in one call, and Redis is not held up for long.
local MISSING_MAX = 40
local STEP_MAX = 100
local lane, limit, bytes_max = ARGV[FIRST], tonumber(ARGV[FIRST + 2]), tonumber(ARGV[FIRST + 3])
if call('HGET', owner, lane) ~= ARGV[FIRST + 1] then return {} end
local paused = redis.pcall('SISMEMBER', KEYS[PAUSED], lane)
if paused == 1 then return { '', '', '' } end
-- Something else wrote to that key: a claim goes by what was known before.
if paused ~= 0 then return { '', 'r', '' } end

local own = tag(lane)
local members = call('ZRANGEBYLEX', wait, '[' .. own, '(' .. own .. six(now + 1), 'LIMIT', 0, limit)
if #members == 0 then
  -- Most calls find nothing: every shard is asked whenever something may be due in one.
  local first = first_of(lane)
  return { first and string.format('%.0f', first) or '', '', '' }
end
local byte, sub, try, min = string.byte, string.sub, redis.pcall, math.min
local streams = {}
for i = PAUSED + 1, #KEYS do streams[KEYS[i]] = i - PAUSED end
local missing, is_missing = {}, {}
local rest = false

-- The flags of a message that is going to a sink, was never tried, and has a head; beside them only the kind of its body.
local SIMPLE = 32 + 128
local MIMES = {
  [SIMPLE] = 'text/plain; charset=utf-8',
  [SIMPLE + 1] = 'application/json',
  [SIMPLE + 2] = 'application/octet-stream',
}
-- state and rank, due, hash, the lane, which is the same in all of them, when it was accepted if it says so, head
local LANE_PART = char(#lane - 1) .. sub(lane, 2)
local AFTER_LANE = 17 + #lane
local SHAPE = '>Bxc6c8' .. ('x'):rep(#lane) .. 'I4BBc0'
local DATED = '>Bxc6c8' .. ('x'):rep(#lane) .. 'c6I4BBc0'
-- what a head has
local TOPIC, TAG, KEY, LATENESS, RETRY, PROPERTIES = 1, 2, 4, 8, 16, 32
local RETRY_LEN = 4 + 1 + 8 + 8

-- The numbers of the state and the rank of what is pending, the flag of the time of acceptance left out.
local function is_pending(first) return first % ACCEPTED == PENDING and first < 16 * 10 end

-- Of a head that has more than a topic: the properties as fields, and tag and key; nil if they are not simple.
local function more_fields(packed, at, has)
  local fields, last, text, name = {}, {}, nil, nil
  if has % (2 * TAG) >= TAG then
    text, at = unpacked('Bc0', packed, at)
    last = { 'duly-tag', text }
  end
  if has % (2 * KEY) >= KEY then
    text, at = unpacked('Bc0', packed, at)
    last[#last + 1], last[#last + 2] = 'duly-key', text
  end
  if has % (2 * LATENESS) >= LATENESS then return nil end
  if has % (2 * RETRY) >= RETRY then at = at + RETRY_LEN end
  if has >= PROPERTIES then
    local properties
    properties, at = unpacked('>I2', packed, at)
    if properties > 1000 then return nil end
    for i = 1, 2 * properties, 2 do
      name, text, at = unpacked('>Bc0I2c0', packed, at)
      if name == 'body' or name == 'content-type' or sub(name, 1, 5) == 'duly-' then return nil end
      fields[i], fields[i + 1] = name, text
    end
  end
  return fields, last, at
end

-- A record is what a claim and a settle would have left: one attempt, delivered now, without its body.
local now_six = six(now)
local middles, tails, fronts = {}, {}, {}
local function middle(entry_len)
  local known = middles[entry_len]
  if not known then
    -- ready 6, attempts 4, ended 6, reason 1, receipt 4 + 1 + n, tries 1, and a try: at 6, outcome 1, detail 2
    local life_len = 6 + 4 + 6 + 1 + 4 + 1 + entry_len + 1 + 9
    known = { pack('>I4', life_len), pack('>I4c6BI4', 1, now_six, 255, entry_len + 1) .. '=' }
    middles[entry_len] = known
  end
  return known
end
local LIFE_END = char(1) .. now_six .. char(0, 0, 0)

local due_texts, due_counts = {}, {}
local members_moved, records, used, looked, moved = {}, {}, {}, 0, 0

-- Moves one message. Returns whether it needs a claim instead.
local function move(member, id, packed)
  if #packed < AFTER_LANE or sub(packed, 17, AFTER_LANE - 1) ~= LANE_PART or not is_pending(byte(packed, 1)) then return true end
  local flags = byte(packed, 2)
  local mime = MIMES[flags]
  if not mime then return true end
  local is_whole, first, due, hash, head_len, has, topic, at
  local accepted = ''
  if byte(packed, 1) % 16 >= ACCEPTED then
    is_whole, first, due, hash, accepted, head_len, has, topic, at = pcall(unpacked, DATED, packed)
  else
    is_whole, first, due, hash, head_len, has, topic, at = pcall(unpacked, SHAPE, packed)
  end
  -- It waits where its due time says.
  if not is_whole or has % 2 ~= TOPIC or due ~= sub(member, #own + 1, #own + 6) then return true end
  local head_at = AFTER_LANE + #accepted
  local body_at, entry = head_at + 4 + head_len, nil
  if body_at > #packed + 1 or (has == TOPIC and at ~= body_at) then return true end
  local stream = streams[topic]
  if not stream then
    if not is_missing[topic] and #missing < MISSING_MAX then
      is_missing[topic] = true
      missing[#missing + 1] = topic
    end
    return false
  end
  local text = due_texts[due]
  if not text then
    text = string.format('%.0f', time(due))
    due_texts[due], due_counts[due] = text, 0
  end
  local body = sub(packed, body_at)
  if has == TOPIC then
    entry = try('XADD', topic, '*', 'body', body, 'content-type', mime, 'duly-id', id, 'duly-due', text, 'duly-attempt', '1')
  else
    local is_read, fields, last, fields_end = pcall(more_fields, packed, at, has)
    if not is_read or not fields or fields_end ~= body_at then return true end
    for _, field in ipairs({ 'duly-id', id, 'duly-due', text, 'duly-attempt', '1', unpack(last) }) do
      fields[#fields + 1] = field
    end
    entry = try('XADD', topic, '*', 'body', body, 'content-type', mime, unpack(fields))
  end
  if type(entry) ~= 'string' then return true end

  local tail = has == TOPIC and tails[topic]
  if not tail then
    tail = LIFE_END .. sub(packed, head_at, body_at - 1)
    if has == TOPIC then tails[topic] = tail end
  end
  local front = fronts[first * 256 + flags]
  if not front then
    front = char(first + DELIVERED, flags + 64)
    fronts[first * 256 + flags] = front
  end
  local parts = middle(#entry)
  local record = front .. due .. hash .. LANE_PART .. accepted .. parts[1] .. due .. parts[2] .. entry .. tail
  records[2 * moved + 1], records[2 * moved + 2] = id, record
  members_moved[3 * moved + 1], members_moved[3 * moved + 2], members_moved[3 * moved + 3] = char(stream), char(#member), member
  moved = moved + 1
  due_counts[due] = due_counts[due] + 1
  used[topic] = true
  return false
end

local step, bytes = 4, 0
while looked < #members and bytes < bytes_max do
  local count_of, ids, marked = min(step, #members - looked), {}, {}
  for i = 1, count_of do
    local member = members[looked + i]
    marked[i] = byte(member, -1) < 32
    ids[i] = sub(member, #own + 8, marked[i] and -2 or -1)
  end
  local packed = call('HMGET', msg, unpack(ids))
  for i = 1, count_of do
    local value = packed[i]
    if marked[i] or not value or move(members[looked + i], ids[i], value) then rest = true end
    bytes = bytes + (value and #value or 0)
  end
  looked = looked + count_of
  -- Bodies may be large: how many are read at once goes by those seen so far.
  step = math.max(1, min(STEP_MAX, floor((bytes_max - bytes) / (bytes / looked + 1))))
end

local all_moved = table.concat(members_moved)
if moved > 0 then
  for due, count_of in pairs(due_counts) do count_pending(lane, due, -count_of) end
  increment(counts, '#delivered', moved)
  if moved == looked then
    call('ZREMRANGEBYLEX', wait, '[' .. own, '[' .. members[looked])
  else
    for i = 1, moved do remove('ZREM', wait, members_moved[3 * i]) end
  end
  for i = 1, 2 * moved, 1000 do call('HSET', msg, unpack(records, i, min(i + 999, 2 * moved))) end
  call('ZADD', ended, now, char(BATCH + DELIVERED, #own, moved) .. all_moved)
  finish(2 * moved + 32)
  local most, age = tonumber(ARGV[FIRST + 4]), tonumber(ARGV[FIRST + 5])
  local server = age > 0 and call('TIME')
  local oldest = server and server[1] * 1000 + floor(server[2] / 1000) - age or 0
  for topic in pairs(used) do
    if most > 0 then call('XTRIM', topic, 'MAXLEN', '~', most) end
    if oldest > 0 then call('XTRIM', topic, 'MINID', '~', string.format('%.0f', oldest)) end
  end
end

local first = first_of(lane)
return { first and string.format('%.0f', first) or '', rest and 'r' or '', all_moved, unpack(missing) }
