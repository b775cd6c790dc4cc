-- The log of an identifier that is audited: the units admitted in the trailing window, each with its moment.
-- A sorted set, one member for each unit, scored by the moment; README.md is the contract.

-- A member that is no unit. Its score is a moment: of all after it, the log has every unit.
local SINCE = 'since'
-- The score of a counter that holds nothing. Below all moments, so that none is taken for a unit.
local NONE = -1
-- Two values each, and a Lua function takes fewer than 8,000.
local UNITS_AT_ONCE = 1000

-- Whether the call has such an identifier: else none of this is made.
local audited = ARGV[2] == 'audit'
local fault, remembered, whole_since, logged, add_to_log

if audited then
  -- The text of what pcall caught.
  function fault(caught)
    return type(caught) == 'table' and caught.err or tostring(caught)
  end

  -- A member that is no unit either: it remembers what the counter of a window held, by a score so far below -1.
  function remembered(number)
    return format('counted-%.0f', number)
  end

  -- The moment after which the log has every unit; nothing where the counters of the windows do not hold what
  -- it remembers of them, so that some was charged or lost without it. Where neither is, none can be missing.
  function whole_since(key, from, number, current, previous)
    local found = call('ZMSCORE', key, SINCE, remembered(number), remembered(number - 1))
    local alike = current == NONE - (tonumber(found[2]) or NONE)
      and previous == NONE - (tonumber(found[3]) or NONE)
    return alike and (tonumber(found[1]) or from)
  end

  -- The units admitted in the `length` up to `moment`, or nothing where the log cannot tell.
  function logged(key, moment, length, current, previous)
    local from, number = max(moment - length, NONE), floor(moment / length)
    local since = whole_since(key, from, number, current, previous)
    return since and since <= from and call('ZCOUNT', key, format('(%.0f', from), '+inf')
  end

  -- Adds units admitted at `moment`, drops those that have left, and sets the time to live. A log that has
  -- `most` units takes no more, and cannot tell until these have left.
  function add_to_log(key, moment, length, current, previous, units, most, expire, time)
    local from, number = max(moment - length, NONE), floor(moment / length)
    local since = whole_since(key, from, number, current, previous)
    if since then
      since = max(since, from)
      call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', from))
    else
      -- A clock may have been set back: what it had of later moments goes too.
      since = max(moment, tonumber(call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]) or moment)
      call('DEL', key)
    end
    call('ZADD', key, format('%.0f', since), SINCE, format('%.0f', NONE - current - units), remembered(number),
      format('%.0f', NONE - previous), remembered(number - 1))
    call(expire, key, time)
    local room = most + 3 - call('ZCARD', key)
    if units > room then
      units, since = room, max(since, moment)
      call('ZADD', key, format('%.0f', since), SINCE)
    end
    -- The serials of a moment have no gap: what is given back are the highest.
    local serial = call('ZCOUNT', key, moment, moment) - (since == moment and 1 or 0)
    local last = serial + units
    while serial < last do
      local members = {}
      for place = 1, 2 * min(UNITS_AT_ONCE, last - serial), 2 do
        serial = serial + 1
        members[place], members[place + 1] = moment, format('%.0f-%06d', moment, serial)
      end
      call('ZADD', key, unpack(members))
    end
  end
end
