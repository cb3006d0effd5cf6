-- Removes the oldest entries: those past the length or the age, up to the first that a group has not acknowledged.
--
-- Redis has no command that returns ids or positions without the entries. So no entry is read as long as counters show that all groups
-- need only what stays; otherwise the entries that are removed are read, one at a time, and the first that stays.
--
-- KEYS[1] the stream
-- ARGV[1] the largest length, or ''    ARGV[2] the largest age in ms, or ''
-- ARGV[3] 'keep' or 'drop' unacknowledged entries     ARGV[4] how many entries to read
-- ARGV[5] how many entries to remove with one call     ARGV[6] the group of the caller
-- ARGV[7..] watermarks, oldest first: an id, and how many entries had been added to the stream up to it
-- Result  {removed entries, '1' if there may be more, the group that blocks trimming or '', entries past the limit, a watermark: id and
--         count or ''}
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return ms, seq
end
-- Numbers of any length, as text.
local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end
local function before(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  if a_ms == b_ms then
    return less(a_seq, b_seq)
  end
  return less(a_ms, b_ms)
end

local removed = 0
-- Trims; whole nodes first, as many as one call may remove. False if there is more.
local function trim(how, limit)
  local some = redis.call('XTRIM', KEYS[1], how, '~', limit, 'LIMIT', ARGV[5])
  removed = removed + some
  if some * 2 > tonumber(ARGV[5]) then
    return false
  end
  removed = removed + redis.call('XTRIM', KEYS[1], how, '=', limit)
  return true
end
local function first_id()
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  return first and first[1]
end
local max_len = tonumber(ARGV[1])
local function excess()
  return max_len and math.max(0, redis.call('XLEN', KEYS[1]) - max_len) or 0
end
local oldest
if ARGV[2] ~= '' then
  local time = redis.call('TIME')
  oldest = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[2])) .. '-0'
end

if ARGV[3] == 'drop' then
  local is_all = not oldest or trim('MINID', oldest)
  is_all = is_all and (excess() == 0 or trim('MAXLEN', max_len))
  return {removed, is_all and '0' or '1', '', 0, '', ''}
end

-- What each group still needs: its pending entries, and all after its last delivered id. The group that needs the oldest blocks trimming.
local groups, blocked_by, needed, added, watermark = {}, nil, nil, nil, {'', ''}
for _, reply in ipairs(redis.call('XLEN', KEYS[1]) > 0 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}) do
  local group = {}
  for i = 1, #reply, 2 do
    group[reply[i]] = reply[i + 1]
  end
  group.last = group['last-delivered-id']
  group.oldest = redis.call('XPENDING', KEYS[1], group.name)[2] or nil
  local from = group.oldest
  if not from then
    local ms, seq = parts(group.last)
    -- The next after the last. A number of Lua has fewer digits than an id may have: then the last one stays, too.
    from = #seq > 15 and group.last or ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
  end
  -- The group of the caller is active: of groups that need the same, another is named.
  if not needed or before(from, needed) or (from == needed and blocked_by == ARGV[6]) then
    needed, blocked_by = from, group.name
  end
  if group['entries-read'] and group.lag then
    added = group['entries-read'] + group.lag
    if group.name == ARGV[6] then
      watermark = {group.last, string.format('%.0f', group['entries-read'])}
    end
  end
  groups[#groups + 1] = group
end
if #groups == 0 then
  return {0, '0', '', 0, '', ''}
end

-- Whether all that any group needs is among the newest `max_len` entries, so that none has to be read.
local function is_recent()
  local safe, first = nil, nil
  for i = 7, #ARGV - 1, 2 do
    if not safe and added and added - tonumber(ARGV[i + 1]) <= max_len then
      safe = ARGV[i]
    end
  end
  for _, group in ipairs(groups) do
    if not group.lag or group.lag > max_len then
      return false
    end
    if group.oldest then
      first = first or first_id()
      -- A watermark below the first entry may be of an earlier stream of this name.
      if not safe or not first or before(safe, first) or not before(safe, group.oldest) then
        return false
      end
    end
  end
  return true
end
-- Whether more than `max_len` entries come after what is needed.
local function is_behind()
  for _, group in ipairs(groups) do
    if group.lag and group.lag >= max_len then
      return true
    end
  end
end

local is_all = true
if oldest then
  is_all = trim('MINID', before(needed, oldest) and needed or oldest)
end
if is_all and excess() > 0 then
  if is_recent() then
    is_all = trim('MAXLEN', max_len)
  elseif is_behind() then
    is_all = trim('MINID', needed)
  else
    local read_max = math.min(excess(), tonumber(ARGV[4]))
    local first, count = first_id(), 0
    while first and count < read_max and before(first, needed) do
      count = count + 1
      local next = redis.call('XRANGE', KEYS[1], '(' .. first, '+', 'COUNT', 1)[1]
      first = next and next[1]
    end
    if count > 0 then
      removed = removed + redis.call('XTRIM', KEYS[1], 'MAXLEN', '=', redis.call('XLEN', KEYS[1]) - count)
    end
    is_all = count < tonumber(ARGV[4])
  end
end
local over, first = excess(), nil
local is_blocked = is_all and over > 0
if is_all and not is_blocked and oldest and before(needed, oldest) then
  first = first_id()
  is_blocked = first and before(first, oldest)
end
return {removed, is_all and '0' or '1', is_blocked and blocked_by or '', over, watermark[1], watermark[2]}
